#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_fused_sdp_choice_cpu_dispatch.h>
#include <torch/library.h>

namespace neuron {

namespace {

// Which implementation of attention runs on CPU. It depends on what wants a gradient, which aliases do not tell a
// kernel that comes by the fallback. Tensors whose operators Python takes over, such as DTensor, know how to cut and
// join matrix products, not CPU's fused kernels.
int64_t fused_sdp_choice(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  if (query.key_set().has(c10::DispatchKey::Python)) return static_cast<int64_t>(sdp::SDPBackend::math);
  return at::cpu::_fused_sdp_choice(query, key, value, mask, dropout, is_causal, scale, enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &fused_sdp_choice); }

} // namespace

} // namespace neuron

// scaled_dot_product_attention asks this table, not the operator, and composes attention of matrix products for a
// device that is not in it.
namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::fused_sdp_choice)

} // namespace at::native
