#include <ATen/EmptyTensor.h>
#include <torch/library.h>

#include "csrc/device/allocator.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// The device to allocate on, made current so that the allocator sees it.
class OnDevice {
 public:
  OnDevice(std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory)
      : previous_(current_device()) {
    TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
    TORCH_CHECK(
        layout.value_or(c10::kStrided) == c10::kStrided, "the neuron device has no tensors of layout ", *layout);
    if (device && device->has_index()) {
      check_device(device->index());
      exchange_device(device->index());
    }
  }
  ~OnDevice() { exchange_device(previous_); }

 private:
  c10::DeviceIndex previous_;
};

at::Tensor empty(
    c10::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<c10::Layout> layout,
    std::optional<c10::Device> device, std::optional<bool> pin_memory, std::optional<c10::MemoryFormat> format) {
  const OnDevice guard(layout, device, pin_memory);
  return at::detail::empty_generic(size, allocator(), kKeys, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<at::ScalarType> dtype,
    std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  const OnDevice guard(layout, device, pin_memory);
  return at::detail::empty_strided_generic(size, stride, allocator(), kKeys, c10::dtype_or_default(dtype));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
}

} // namespace

} // namespace neuron
