#include <ATen/core/Tensor.h>
#include <ATen/ops/copy_ops.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "csrc/device/alias.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

// Between any two of host and devices: all of it is memory of this process, so a copy is torch's CPU copy.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& source, bool non_blocking) {
  check_not_forked();
  Aliases aliases;
  const auto on_host = [&aliases](const at::Tensor& tensor) {
    return is_neuron(tensor) ? aliases.alias(tensor, /*written=*/false) : tensor;
  };
  at::Tensor target = on_host(self);
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAboveKernels);
  at::_ops::copy_::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), target, on_host(source), non_blocking);
  return self;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  at::Tensor target = dst;
  return copy_(target, self, non_blocking);
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  dst.resize_(self.sizes());
  return copy_from(self, dst, /*non_blocking=*/false);
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  TORCH_CHECK(
      stream.device_type() == c10::DeviceType::PrivateUse1,
      "record_stream of a neuron tensor needs a neuron stream, not ", stream);
}

// A parameter stays the same object when module.to() moves it between host and device.
bool has_compatible_shallow_copy_type(const at::Tensor& self, const at::Tensor& from) {
  const auto movable = [](const at::Tensor& tensor) {
    return tensor.layout() == c10::kStrided && (tensor.is_cpu() || tensor.is_privateuseone());
  };
  return (movable(self) && movable(from)) ||
      self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("copy_", &copy_);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

} // namespace

} // namespace neuron
