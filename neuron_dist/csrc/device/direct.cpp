#include "csrc/device/direct.h"

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Operators.h>

#include "csrc/device/alias.h"
#include "csrc/device/landing.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

// One call: the same steps as the fallback's, on typed arguments. A tensor that torch passes as not const is written,
// and so is the first list of an operator that returns nothing.
template <class Op, class Signature>
class DirectCall;

template <class Op, class Result, class... Arguments>
class DirectCall<Op, Result(Arguments...)> {
 public:
  static Result run(Arguments... arguments) {
    check_not_forked();
    DirectCall call;
    (call.find_device(arguments), ...);
    return call.run_kernel(arguments...);
  }

 private:
  // The reference that in-place and out= operators return is to an alias, so it is dropped.
  using Returned = std::conditional_t<std::is_reference_v<Result>, void, Result>;

  Result run_kernel(Arguments... arguments) {
    if constexpr (std::is_void_v<Returned>) {
      redispatch(arguments...);
      aliases_.write_back(device_);
      if constexpr (!std::is_void_v<Result>) return *written_;
    } else {
      Result result = redispatch(arguments...);
      adopt(result);
      return result;
    }
  }

  Returned redispatch(Arguments... arguments) {
    // In braces the arguments are swapped in order.
    std::tuple<decltype(swap(std::declval<Arguments>()))...> swapped{swap(arguments)...};
    const Landing landing(device_.index());
    const c10::impl::ExcludeDispatchKeyGuard below_autograd(kAboveKernels);
    return std::apply(
        [](auto&... each) {
          return static_cast<Returned>(Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), each...));
        },
        swapped);
  }

  void find_device(const at::Tensor& tensor) {
    if (device_.is_cpu() && is_neuron(tensor)) device_ = tensor.device();
  }
  void find_device(const std::optional<at::Tensor>& tensor) {
    if (tensor) find_device(*tensor);
  }
  void find_device(at::TensorList tensors) {
    for (const at::Tensor& tensor : tensors) find_device(tensor);
  }
  void find_device(const at::ITensorListRef& tensors) {
    for (const at::Tensor& tensor : tensors) find_device(tensor);
  }
  template <class Other>
  void find_device(const Other&) {}

  at::Tensor swap(const at::Tensor& tensor, bool written) {
    if (!tensor.defined()) return tensor;
    if (tensor.device() == device_) return aliases_.alias(tensor, written);
    check_joins(tensor, device_, written, Op::name, Op::overload_name);
    return tensor;
  }
  at::Tensor swap(const at::Tensor& tensor) { return swap(tensor, /*written=*/false); }
  at::Tensor swap(at::Tensor& tensor) {
    written_ = &tensor;
    return swap(tensor, /*written=*/true);
  }
  std::optional<at::Tensor> swap(const std::optional<at::Tensor>& tensor) {
    return tensor ? std::make_optional(swap(*tensor)) : std::nullopt;
  }
  std::vector<at::Tensor> swap(at::TensorList tensors) {
    const bool written = std::is_void_v<Result> && !seen_list_;
    seen_list_ = true;
    std::vector<at::Tensor> swapped;
    swapped.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) swapped.push_back(swap(tensor, written));
    return swapped;
  }
  std::vector<at::Tensor> swap(const at::ITensorListRef& tensors) {
    std::vector<at::Tensor> swapped;
    swapped.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) swapped.push_back(swap(tensor, /*written=*/false));
    return swapped;
  }
  template <class Other>
  const Other& swap(const Other& other) {
    return other;
  }

  void adopt(at::Tensor& result) { result = aliases_.adopt(std::move(result), device_); }
  void adopt(std::vector<at::Tensor>& results) {
    for (at::Tensor& result : results) adopt(result);
  }
  template <class... Results>
  void adopt(std::tuple<Results...>& results) {
    std::apply([this](auto&... each) { (adopt(each), ...); }, results);
  }

  c10::Device device_ = c10::kCPU;
  Aliases aliases_;
  at::Tensor* written_ = nullptr;
  bool seen_list_ = false;
};

template <class Op>
void register_direct(torch::Library& library) {
  const std::string name = std::string(Op::name) + (*Op::overload_name ? "." : "") + Op::overload_name;
  library.impl(name.c_str(), &DirectCall<Op, typename Op::schema>::run);
}

template <class... Ops>
void register_all(torch::Library& library) {
  (register_direct<Ops>(library), ...);
}

} // namespace

void register_direct_calls(torch::Library& library) {
  namespace ops = at::_ops;
  // Elementwise.
  register_all<
      ops::add_Tensor, ops::add__Tensor, ops::add_out, ops::sub_Tensor, ops::sub__Tensor, ops::sub_out, ops::mul_Tensor,
      ops::mul__Tensor, ops::mul_out, ops::div_Tensor, ops::div__Tensor, ops::div_out, ops::addcmul, ops::addcmul_,
      ops::addcdiv, ops::addcdiv_, ops::lerp_Scalar, ops::lerp__Scalar, ops::pow_Tensor_Scalar, ops::neg, ops::exp,
      ops::log, ops::sqrt, ops::rsqrt, ops::reciprocal, ops::abs, ops::tanh, ops::sigmoid, ops::relu, ops::relu_,
      ops::gelu, ops::silu, ops::clamp, ops::where_self, ops::eq_Scalar, ops::eq_Tensor, ops::ne_Scalar, ops::gt_Scalar,
      ops::lt_Scalar, ops::fill__Scalar, ops::zero_>(library);
  // Reductions and normalisations.
  register_all<
      ops::sum, ops::sum_dim_IntList, ops::mean, ops::mean_dim, ops::amax, ops::_softmax, ops::_log_softmax,
      ops::_softmax_backward_data, ops::_log_softmax_backward_data, ops::native_layer_norm, ops::tanh_backward,
      ops::sigmoid_backward, ops::threshold_backward, ops::gelu_backward, ops::silu_backward>(library);
  // Products.
  register_all<
      ops::mm, ops::mm_out, ops::addmm, ops::addmm_out, ops::bmm, ops::bmm_out, ops::baddbmm, ops::dot, ops::mv>(
      library);
  // Gathering.
  register_all<ops::cat, ops::cat_out, ops::embedding, ops::embedding_dense_backward, ops::index_select, ops::gather>(
      library);
  // The optimizers' lists.
  register_all<
      ops::_foreach_add__Scalar, ops::_foreach_add__List, ops::_foreach_mul__Scalar, ops::_foreach_mul__List,
      ops::_foreach_mul__Tensor, ops::_foreach_addcmul__Scalar, ops::_foreach_addcdiv__Scalar,
      ops::_foreach_addcdiv__ScalarList, ops::_foreach_lerp__Scalar, ops::_foreach_sqrt, ops::_foreach_div__ScalarList,
      ops::_foreach_norm_Scalar, ops::_foreach_zero_>(library);
}

} // namespace neuron
