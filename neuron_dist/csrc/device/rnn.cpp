// The fused cells that torch.nn.LSTM and GRU call on an accelerator; torch has no CPU kernel of them.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace neuron {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

Tensor with_bias(const Tensor& gates, const MaybeTensor& bias) {
  return bias && bias->defined() ? gates + *bias : gates;
}

Tensor or_zeros(const MaybeTensor& gradient, const Tensor& like) {
  return gradient && gradient->defined() ? *gradient : at::zeros_like(like);
}

// Gates are [batch, 4 * hidden] in the order input, forget, cell, output; the workspace holds them activated.
std::tuple<Tensor, Tensor, Tensor> lstm_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& cx, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  const auto gates = (with_bias(input_gates, input_bias) + with_bias(hidden_gates, hidden_bias)).chunk(4, 1);
  const Tensor in = gates[0].sigmoid();
  const Tensor forget = gates[1].sigmoid();
  const Tensor cell = gates[2].tanh();
  const Tensor out = gates[3].sigmoid();
  Tensor cy = forget * cx + in * cell;
  return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

// Gradients of the gates, of cx and, with a bias, of it.
std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(
    const MaybeTensor& grad_hy, const MaybeTensor& grad_cy, const Tensor& cx, const Tensor& cy, const Tensor& workspace,
    bool has_bias) {
  if (!(grad_hy && grad_hy->defined()) && !(grad_cy && grad_cy->defined())) return {};
  const auto gates = workspace.chunk(4, 1);
  const Tensor &in = gates[0], &forget = gates[1], &cell = gates[2], &out = gates[3];
  const Tensor dhy = or_zeros(grad_hy, cy);
  const Tensor tanh_cy = cy.tanh();
  const Tensor dcy = or_zeros(grad_cy, cy) + dhy * out * (1 - tanh_cy * tanh_cy);
  Tensor dgates = at::cat(
      {dcy * cell * in * (1 - in), dcy * cx * forget * (1 - forget), dcy * in * (1 - cell * cell),
       dhy * tanh_cy * out * (1 - out)},
      1);
  return {dgates, dcy * forget, has_bias ? dgates.sum(0) : Tensor()};
}

// Gates are [batch, 3 * hidden] in the order reset, update, new; the workspace, [batch, 5 * hidden], holds them
// activated, then hx, then the hidden part of the new gate.
std::tuple<Tensor, Tensor> gru_cell(
    const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const MaybeTensor& input_bias,
    const MaybeTensor& hidden_bias) {
  const auto input = with_bias(input_gates, input_bias).chunk(3, 1);
  const auto hidden = with_bias(hidden_gates, hidden_bias).chunk(3, 1);
  const Tensor reset = (input[0] + hidden[0]).sigmoid();
  const Tensor update = (input[1] + hidden[1]).sigmoid();
  const Tensor fresh = (input[2] + reset * hidden[2]).tanh();
  return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// Gradients of input gates, hidden gates and hx and, with a bias, of both biases.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(
    const Tensor& grad_hy, const Tensor& workspace, bool has_bias) {
  const auto saved = workspace.chunk(5, 1);
  const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden_new = saved[4];
  const Tensor dnew = grad_hy * (1 - update) * (1 - fresh * fresh);
  const Tensor dreset = dnew * hidden_new * reset * (1 - reset);
  const Tensor dupdate = grad_hy * (hx - fresh) * update * (1 - update);
  Tensor dinput = at::cat({dreset, dupdate, dnew}, 1);
  Tensor dhidden = at::cat({dreset, dupdate, dnew * reset}, 1);
  Tensor dinput_bias = has_bias ? dinput.sum(0) : Tensor();
  Tensor dhidden_bias = has_bias ? dhidden.sum(0) : Tensor();
  return {dinput, dhidden, grad_hy * update, dinput_bias, dhidden_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

} // namespace

} // namespace neuron
