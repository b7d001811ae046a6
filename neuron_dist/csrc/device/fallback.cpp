#include "csrc/device/fallback.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>

#include <ATen/core/Generator.h>
#include <ATen/core/List.h>
#include <torch/library.h>

#include "csrc/device/alias.h"
#include "csrc/device/arena.h"
#include "csrc/device/direct.h"
#include "csrc/device/generator.h"
#include "csrc/device/landing.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

// Operators whose tensors may lie on the host beside a neuron `self`, as CUDA's kernels accept them.
constexpr std::array<std::string_view, 6> kTakesHostTensors{
    "aten::index",         "aten::index_put_",        "aten::_index_put_impl_",
    "aten::_unsafe_index", "aten::_unsafe_index_put", "aten::_pack_padded_sequence"};

bool takes_generator(const c10::Argument& argument) {
  const auto* optional = argument.real_type()->castRaw<c10::OptionalType>();
  return optional && optional->getElementType()->kind() == c10::TypeKind::GeneratorType;
}

// One call: swaps the arguments on the stack for CPU aliases, runs the kernel, swaps the results back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack* stack)
      : op_(op), schema_(op.schema()), stack_(*stack), first_(stack->size() - schema_.arguments().size()) {}

  void run() {
    find_device();
    for (size_t i = first_; i < stack_.size(); ++i) swap_argument(stack_[i], schema_.arguments()[i - first_]);
    {
      const Landing landing(device_.index());
      const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAboveKernels);
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    }
    aliases_.write_back(device_);
    for (size_t i = first_; i < stack_.size(); ++i) adopt_result(stack_[i]);
  }

 private:
  void find_device() {
    for (size_t i = first_; i < stack_.size(); ++i) {
      const c10::IValue& value = stack_[i];
      if (value.isTensor()) {
        if (use_device_of(value.toTensor())) return;
      } else if (value.isTensorList()) {
        for (const at::Tensor& tensor : value.toTensorList()) {
          if (use_device_of(tensor)) return;
        }
      } else if (value.isDevice() && value.toDevice().is_privateuseone() && value.toDevice().has_index()) {
        device_ = value.toDevice();
        return;
      }
    }
    device_ = neuron_device(current_device());
  }

  bool use_device_of(const at::Tensor& tensor) {
    if (!is_neuron(tensor)) return false;
    device_ = tensor.device();
    return true;
  }

  const at::Tensor& swap(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (tensor.device() == device_) return aliases_.alias(tensor, written);
    if (tensor.is_privateuseone() || !takes_host_tensors()) {
      check_joins(tensor, device_, written, schema_.name(), schema_.overload_name());
    }
    return tensor;
  }

  bool takes_host_tensors() const {
    return std::find(kTakesHostTensors.begin(), kTakesHostTensors.end(), schema_.name()) != kTakesHostTensors.end();
  }

  void swap_argument(c10::IValue& value, const c10::Argument& argument) {
    const bool written = argument.alias_info() && argument.alias_info()->isWrite();
    if (value.isTensor()) {
      const c10::IValue& given = keep(value);
      value = swap(given.toTensor(), written);
    } else if (value.isTensorList()) {
      const c10::IValue& given = keep(value);
      c10::List<at::Tensor> swapped;
      swapped.reserve(given.toListRef().size());
      for (const c10::IValue& entry : given.toListRef()) swapped.push_back(swap(entry.toTensor(), written));
      value = std::move(swapped);
    } else if (value.isOptionalTensorList()) {
      const c10::IValue& given = keep(value);
      c10::List<std::optional<at::Tensor>> swapped;
      swapped.reserve(given.toListRef().size());
      for (const c10::IValue& entry : given.toListRef()) {
        swapped.push_back(entry.isNone() ? std::nullopt : std::make_optional(swap(entry.toTensor(), written)));
      }
      value = std::move(swapped);
    } else if (value.isDevice()) {
      if (value.toDevice().is_privateuseone()) value = c10::Device(c10::kCPU);
    } else if (value.isStorage()) {
      if (value.toStorage().device_type() == c10::DeviceType::PrivateUse1) {
        value = aliases_.alias(keep(value).toStorage());
      }
    } else if (value.isGenerator()) {
      value = host_generator(value.toGenerator(), device_.index());
    } else if (value.isNone() && takes_generator(argument)) {
      value = host_generator(std::nullopt, device_.index());
    }
  }

  // Holds an argument until the call ends: aliases do not.
  const c10::IValue& keep(c10::IValue& value) {
    given_.push_back(std::move(value));
    return given_.back();
  }

  void adopt_result(c10::IValue& value) {
    if (value.isTensor()) {
      value = aliases_.adopt(std::move(value).toTensor(), device_);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> adopted;
      for (const at::Tensor& tensor : value.toTensorList()) adopted.push_back(aliases_.adopt(tensor, device_));
      value = std::move(adopted);
    }
  }

  const c10::OperatorHandle& op_;
  const c10::FunctionSchema& schema_;
  torch::jit::Stack& stack_;
  const size_t first_;
  c10::Device device_ = c10::kCPU;
  c10::SmallVector<c10::IValue, 6> given_;
  Aliases aliases_;
};

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) { run_cpu_kernel(op, stack); }

void refuse(const c10::OperatorHandle& op, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op.operator_name(), ": the neuron device has dense tensors only, no sparse, quantized or nested ones");
}

TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse>()); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// Operators composed of parts that look for a kernel of the device's own, check for a device they know, or tell by its
// address in C++ that an argument is passed twice.
constexpr std::array<std::string_view, 6> kComposedForKnownDevices{
    "aten::convolution",    "aten::_convolution", "aten::convolution_backward",
    "aten::conj_physical_", "aten::addr_",        "aten::mode"};

// Whether an operator that torch can also compose of others should run as one CPU kernel call, which saves a call for
// each part.
bool runs_whole(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  return name.rfind("aten::_foreach_", 0) == 0 || op.hasKernelForDispatchKey(c10::DispatchKey::CPU) ||
      std::find(kComposedForKnownDevices.begin(), kComposedForKnownDevices.end(), name) !=
      kComposedForKnownDevices.end();
}

bool is_registered(const c10::OperatorHandle& op) { return op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1); }

// The dispatcher prefers these generic kernels to a fallback, so the operators are registered one by one.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_direct_calls(m);
  auto& dispatcher = c10::Dispatcher::singleton();
  std::unordered_set<c10::OperatorName> generic;
  for (const auto key :
       {c10::DispatchKey::CompositeExplicitAutograd, c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
        c10::DispatchKey::CompositeImplicitAutograd}) {
    for (const c10::OperatorName& name : dispatcher.getRegistrationsForDispatchKey(key)) generic.insert(name);
  }
  const std::string_view aten = "aten::";
  for (const c10::OperatorName& name : generic) {
    const c10::OperatorHandle op = *dispatcher.findOp(name);
    if (name.name.rfind(aten, 0) != 0 || is_registered(op) || !runs_whole(op)) continue;
    const std::string full_name = c10::toString(name);
    m.impl(full_name.c_str() + aten.size(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

} // namespace

void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  check_not_forked();
  try {
    Call(op, stack).run();
  } catch (const c10::NotImplementedError&) { // asked only now: the question costs more than a small kernel
    TORCH_CHECK_NOT_IMPLEMENTED(
        op.hasComputedKernelForDispatchKey(c10::DispatchKey::CPU), op.operator_name(),
        " is not implemented for the neuron device: torch has no CPU kernel of it to run in its place");
    throw;
  }
}

} // namespace neuron
