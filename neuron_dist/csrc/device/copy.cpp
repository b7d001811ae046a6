#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "csrc/device/alias.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

at::Tensor host_view(const at::Tensor& tensor) { return is_neuron(tensor) ? cpu_alias(tensor) : tensor; }

// Between any two of host and devices: all of it is memory of this process, so a copy is torch's CPU copy.
at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  check_not_forked();
  const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAboveKernels);
  host_view(dst).copy_(host_view(self), non_blocking);
  return dst;
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
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("record_stream", &record_stream);
  m.impl("_has_compatible_shallow_copy_type", &has_compatible_shallow_copy_type);
}

// A copy between tensors of which one is lazily conjugated or negated is the CPU kernel's to resolve; torch's own
// answer, a clone first, would come back here.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

} // namespace

} // namespace neuron
