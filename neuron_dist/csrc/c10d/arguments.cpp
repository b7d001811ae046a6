#include "csrc/c10d/arguments.h"

#include <algorithm>
#include <numeric>

#include "csrc/fabric/reduce.h"

namespace neuron {

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM: return Reduction::sum;
    case c10d::ReduceOp::AVG: return Reduction::average;
    case c10d::ReduceOp::PRODUCT: return Reduction::product;
    case c10d::ReduceOp::MIN: return Reduction::min;
    case c10d::ReduceOp::MAX: return Reduction::max;
    case c10d::ReduceOp::BAND: return Reduction::bit_and;
    case c10d::ReduceOp::BOR: return Reduction::bit_or;
    case c10d::ReduceOp::BXOR: return Reduction::bit_xor;
    default: TORCH_CHECK_VALUE(false, "unknown reduction ", static_cast<int>(op.op_));
  }
}

const at::Tensor& single(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "expected a single ", what, " tensor, got ", tensors.size());
  check_tensor(tensors[0], what);
  return tensors[0];
}

const std::vector<at::Tensor>& single(const std::vector<std::vector<at::Tensor>>& lists, const char* what) {
  TORCH_CHECK_VALUE(lists.size() == 1, "expected a single list of ", what, " tensors, got ", lists.size());
  return lists[0];
}

void check_tensor(const at::Tensor& tensor, const char* what) {
  TORCH_CHECK_VALUE(tensor.defined(), what, " tensor is undefined");
  TORCH_CHECK_TYPE(
      tensor.layout() == at::kStrided && !tensor.is_quantized(), what, " tensor has layout ", tensor.layout(),
      "; the neuron backend carries dense tensors only. Use to_dense() or dequantize().");
  TORCH_CHECK_VALUE(
      tensor.is_cpu() || tensor.is_privateuseone(), what, " tensor is on ", tensor.device(),
      "; the neuron backend carries neuron and CPU tensors");
}

void check_list(const std::vector<at::Tensor>& list, int size, const at::Tensor& like, const char* what) {
  TORCH_CHECK_VALUE(
      list.size() == static_cast<size_t>(size), what, " list has ", list.size(), " tensors for a group of ", size,
      " ranks");
  for (size_t i = 0; i < list.size(); ++i) {
    check_tensor(list[i], what);
    TORCH_CHECK_TYPE(
        list[i].scalar_type() == like.scalar_type(), what, "[", i, "] has dtype ", list[i].scalar_type(), ", expected ",
        like.scalar_type());
  }
}

void check_root(int64_t root, int size) {
  TORCH_CHECK_VALUE(root >= 0 && root < size, "root rank ", root, " is not in a group of ", size, " ranks");
}

Segments whole(const at::Tensor& tensor) { return {tensor, {tensor.nbytes()}}; }

std::vector<Segments> wholes(const std::vector<at::Tensor>& tensors) {
  std::vector<Segments> list;
  list.reserve(tensors.size());
  for (const auto& tensor : tensors) list.push_back(whole(tensor));
  return list;
}

Segments equal_parts(const at::Tensor& tensor, int size, const char* what) {
  TORCH_CHECK_VALUE(
      tensor.numel() % size == 0, what, " tensor has ", tensor.numel(), " elements, not a multiple of the ", size,
      " ranks");
  return {tensor, std::vector<uint64_t>(size, tensor.nbytes() / size)};
}

Segments row_parts(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size, const char* what) {
  if (splits.empty()) {
    TORCH_CHECK_VALUE(
        tensor.dim() > 0 && tensor.size(0) % size == 0, what, " tensor of shape ", tensor.sizes(),
        " cannot be split evenly over ", size, " ranks along dimension 0; give split sizes");
    return equal_parts(tensor, size, what);
  }
  TORCH_CHECK_VALUE(
      splits.size() == static_cast<size_t>(size), what, " split sizes: ", splits.size(), " given for a group of ", size,
      " ranks");
  TORCH_CHECK_VALUE(tensor.dim() > 0, what, " tensor has no dimension to split");
  const int64_t rows = tensor.size(0);
  const int64_t total = std::accumulate(splits.begin(), splits.end(), int64_t{0});
  TORCH_CHECK_VALUE(
      total == rows && std::all_of(splits.begin(), splits.end(), [](int64_t split) { return split >= 0; }), what,
      " split sizes ", at::IntArrayRef(splits), " do not cut the ", rows, " rows of dimension 0");
  const uint64_t row_bytes = rows == 0 ? 0 : tensor.nbytes() / rows;
  Segments segments{tensor, {}};
  for (const int64_t split : splits) segments.bytes.push_back(split * row_bytes);
  return segments;
}

void set_reduction(TensorCollective& collective, const c10d::ReduceOp& op) {
  const at::Tensor& input = collective.inputs[0].tensor;
  collective.call.reduction = reduction_of(op);
  kernels(input.scalar_type(), collective.call.reduction); // throws where the dtype has no such arithmetic
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return;
  const auto* supplement = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(supplement, "PREMUL_SUM has no factor; make it with torch.distributed._make_nccl_premul_sum");
  collective.factor = supplement->tensor_factor.defined()
      ? supplement->tensor_factor.reshape({}).to(input.scalar_type())
      : at::scalar_tensor(supplement->double_factor, at::TensorOptions().dtype(input.scalar_type()));
}

} // namespace neuron
