// The parts of batch normalisation that torch.nn.SyncBatchNorm runs around its collectives. Input is [N, C, ...];
// statistics are [C], in float32 for 16-bit inputs.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/library.h>

namespace neuron {

namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

bool given(const MaybeTensor& tensor) { return tensor && tensor->defined(); }

// All dimensions but the channels'.
std::vector<int64_t> reduced_dims(const Tensor& input) {
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) dims.push_back(dim);
  return dims;
}

Tensor per_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(static_cast<size_t>(input.dim()), 1);
  shape[1] = input.size(1);
  return values.view(shape);
}

at::ScalarType statistics_type(const Tensor& input) { return at::toOpMathType(input.scalar_type()); }

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  const Tensor wide = input.to(statistics_type(input));
  auto [variance, mean] = at::var_mean(wide, reduced_dims(input), /*unbiased=*/false);
  return {mean, (variance + eps).rsqrt()};
}

// mean and invstd are [ranks, C], counts [ranks]: the statistics of all ranks together.
std::tuple<Tensor, Tensor> gather_stats_with_counts(
    const Tensor& input, const Tensor& mean, const Tensor& invstd, const MaybeTensor& running_mean,
    const MaybeTensor& running_var, double momentum, double eps, const Tensor& counts) {
  const Tensor weights = counts.to(mean.scalar_type()).view({-1, 1});
  const Tensor count = weights.sum();
  const Tensor all_mean = (mean * weights).sum(0) / count;
  const Tensor variances = invstd.pow(-2) - eps;
  const Tensor variance = ((variances + (mean - all_mean).square()) * weights).sum(0) / count;
  if (given(running_mean)) running_mean->mul_(1 - momentum).add_(all_mean * momentum);
  if (given(running_var)) running_var->mul_(1 - momentum).add_(variance * (count / (count - 1)) * momentum);
  return {all_mean, (variance + eps).rsqrt()};
}

Tensor elemt(
    const Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias, const Tensor& mean, const Tensor& invstd,
    double) {
  const Tensor scale = given(weight) ? invstd * *weight : invstd;
  Tensor output = (input - per_channel(mean, input)) * per_channel(scale, input);
  if (given(bias)) output = output + per_channel(*bias, input);
  return output.to(input.scalar_type());
}

// Sums over this rank: of dy, of dy * (x - mean), and the gradients of weight and bias.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(
    const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd, const MaybeTensor& weight,
    bool input_g, bool weight_g, bool bias_g) {
  const Tensor dy = grad_out.to(statistics_type(input));
  Tensor sum_dy = dy.sum(reduced_dims(input));
  Tensor sum_dy_xmu = (dy * (input - per_channel(mean, input))).sum(reduced_dims(input));
  Tensor grad_weight, grad_bias;
  if (weight_g && given(weight)) grad_weight = (sum_dy_xmu * invstd).to(weight->scalar_type());
  if (bias_g && given(weight)) grad_bias = sum_dy.to(weight->scalar_type());
  return {input_g ? sum_dy : Tensor(), input_g ? sum_dy_xmu : Tensor(), grad_weight, grad_bias};
}

// The sums and counts are of all ranks.
Tensor backward_elemt(
    const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd, const MaybeTensor& weight,
    const Tensor& sum_dy, const Tensor& sum_dy_xmu, const Tensor& counts) {
  const Tensor count = counts.sum().to(mean.scalar_type());
  const Tensor scale = given(weight) ? invstd * *weight : invstd;
  const Tensor projected =
      (input - per_channel(mean, input)) * per_channel(invstd.square() * sum_dy_xmu / count, input);
  return ((grad_out - per_channel(sum_dy / count, input) - projected) * per_channel(scale, input))
      .to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", &stats);
  m.impl("batch_norm_gather_stats_with_counts", &gather_stats_with_counts);
  m.impl("batch_norm_elemt", &elemt);
  m.impl("batch_norm_backward_reduce", &backward_reduce);
  m.impl("batch_norm_backward_elemt", &backward_elemt);
}

} // namespace

} // namespace neuron
