#pragma once

#include <ATen/core/Generator.h>

namespace neuron {

// Counter-based random numbers (Philox 4x32-10): the state is a seed and an offset, 16 bytes. Element i of a draw
// depends on the seed and on offset + i alone, so a shard that starts at offset + k draws what the whole tensor has
// there.
class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);

  void set_current_seed(uint64_t seed) override;
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override { return offset_; }
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  // The offset at which a draw of `count` elements starts; later draws start after it, at a multiple of 4.
  // Call with mutex_ held.
  uint64_t advance(uint64_t count);

 private:
  NeuronGenerator* clone_impl() const override;

  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

// -1 means the current device.
const at::Generator& default_generator(c10::DeviceIndex device);
// Throws if `generator` is not a neuron one.
NeuronGenerator* generator_or_default(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

// A CPU generator for a kernel that takes no other, seeded from the state of a neuron generator, which moves on.
at::Generator host_generator(const std::optional<at::Generator>& generator, c10::DeviceIndex device);

} // namespace neuron
