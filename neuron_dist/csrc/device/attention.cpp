#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <torch/library.h>

#include "csrc/device/alias.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

at::Tensor alias_for_choice(const at::Tensor& tensor) {
  if (!is_neuron(tensor)) return tensor;
  return cpu_alias(tensor).set_requires_grad(tensor.requires_grad());
}

// Which implementation of attention runs on CPU. It depends on what wants a gradient, which aliases do not tell a
// kernel that comes by the fallback.
int64_t fused_sdp_choice(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask,
    double dropout, bool is_causal, std::optional<double> scale, bool enable_gqa) {
  check_not_forked();
  return at::_fused_sdp_choice(
      alias_for_choice(query), alias_for_choice(key), alias_for_choice(value),
      mask ? std::make_optional(alias_for_choice(*mask)) : std::nullopt, dropout, is_causal, scale, enable_gqa);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", &fused_sdp_choice); }

} // namespace

} // namespace neuron

// scaled_dot_product_attention asks this table, not the operator, and composes attention of matrix products for a device
// that is not in it.
namespace at::native {

REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &neuron::fused_sdp_choice)

} // namespace at::native
