#include "csrc/device/generator.h"

#include <cstring>
#include <memory>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Utils.h>
#include <ATen/core/PhiloxRNGEngine.h>

#include "csrc/device/arena.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

constexpr size_t kStateBytes = 2 * sizeof(uint64_t);

} // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : GeneratorImpl(neuron_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NeuronGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "the offset of a neuron generator must be a multiple of 4, not ", offset);
  offset_ = offset;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(
      state.numel() == kStateBytes, "the state of a neuron generator has ", kStateBytes, " bytes, not ", state.numel());
  uint64_t words[2];
  std::memcpy(words, state.data(), kStateBytes);
  seed_ = words[0];
  set_offset(words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  const uint64_t words[2] = {seed_, offset_};
  at::Tensor state = at::detail::empty_cpu({static_cast<int64_t>(kStateBytes)}, at::kByte);
  std::memcpy(state.mutable_data_ptr(), words, kStateBytes);
  return state.getIntrusivePtr();
}

uint64_t NeuronGenerator::advance(uint64_t count) {
  const uint64_t start = offset_;
  offset_ += (count + 3) / 4 * 4;
  return start;
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto* clone = new NeuronGenerator(device().index());
  clone->seed_ = seed_;
  clone->offset_ = offset_;
  return clone;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* generators = [] {
    auto* made = new std::vector<at::Generator>;
    for (int i = 0; i < Arena::device_count(); ++i) {
      made->push_back(at::make_generator<NeuronGenerator>(static_cast<c10::DeviceIndex>(i)));
    }
    return made;
  }();
  const c10::DeviceIndex index = device < 0 ? current_device() : device;
  check_device(index);
  return (*generators)[static_cast<size_t>(index)];
}

NeuronGenerator* generator_or_default(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  return at::get_generator_or_default<NeuronGenerator>(generator, default_generator(device));
}

at::Generator host_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device) {
  NeuronGenerator* source = generator_or_default(generator, device);
  std::lock_guard<std::mutex> lock(source->mutex_);
  // A subsequence that no element's draws reach.
  at::Philox4_32 words(source->current_seed(), /*subsequence=*/~uint64_t{0}, source->advance(4));
  const uint64_t high = words();
  return at::detail::createCPUGenerator(high << 32 | words());
}

} // namespace neuron
