#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

namespace neuron {

namespace {

using c10d::symmetric_memory::SymmetricMemory;

// torch's one-shot and two-shot collectives on symmetric memory. Every rank reads its peers' HBM itself and sums in the
// order of ranks, in fp32 for the half-precision types: the bits are the same on all.
struct Symmetric {
  Symmetric(const at::Tensor& tensor, const std::string& group, const char* what)
      : tensor(tensor), memory(c10d::symmetric_memory::rendezvous(tensor, group)) {
    TORCH_CHECK_VALUE(memory, what, ": the input must be allocated by torch.distributed._symmetric_memory.empty");
    TORCH_CHECK_VALUE(tensor.is_contiguous(), what, ": the input must be contiguous");
  }

  // The tensor's counterpart on another rank.
  at::Tensor on(int rank) const {
    char* own_buffer = static_cast<char*>(memory->get_buffer_ptrs()[memory->get_rank()]);
    const auto offset = static_cast<char*>(tensor.mutable_data_ptr()) - own_buffer;
    void* address = static_cast<char*>(memory->get_buffer_ptrs()[rank]) + offset;
    return at::for_blob(address, tensor.sizes()).options(tensor.options()).target_device(tensor.device()).make_tensor();
  }

  // The sum over all ranks of what `part` takes of each tensor.
  template <class Part>
  at::Tensor sum(Part part) const {
    const bool half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
    at::Tensor total = part(on(0)).to(half ? at::kFloat : tensor.scalar_type(), false, /*copy=*/true);
    for (int rank = 1; rank < memory->get_world_size(); ++rank) total.add_(part(on(rank)));
    return total;
  }

  const at::Tensor& tensor;
  const c10::intrusive_ptr<SymmetricMemory> memory;
};

void check_sum(const std::string& reduce_op, const char* what) {
  TORCH_CHECK_VALUE(reduce_op == "sum", what, ": reduce_op must be \"sum\", not \"", reduce_op, "\"");
}

at::Tensor whole(const at::Tensor& tensor) { return tensor; }

at::Tensor one_shot_out(const at::Tensor& input, std::string reduce_op, std::string group, at::Tensor out) {
  check_sum(reduce_op, "one_shot_all_reduce");
  TORCH_CHECK_VALUE(out.sizes() == input.sizes(), "one_shot_all_reduce: out must have the shape of the input");
  const Symmetric symmetric(input, group, "one_shot_all_reduce");
  symmetric.memory->barrier(0, 0);
  const at::Tensor total = symmetric.sum(whole);
  symmetric.memory->barrier(0, 0); // peers have read the input: `out` may be it
  return out.copy_(total);
}

at::Tensor one_shot(const at::Tensor& input, std::string reduce_op, std::string group) {
  return one_shot_out(input, std::move(reduce_op), std::move(group), at::empty_like(input));
}

at::Tensor one_shot_copy_out(
    const at::Tensor& symm_buffer, const at::Tensor& local_input, std::string reduce_op, std::string group,
    at::Tensor out) {
  TORCH_CHECK_VALUE(
      symm_buffer.numel() >= local_input.numel() && symm_buffer.scalar_type() == local_input.scalar_type(),
      "one_shot_all_reduce_copy: symm_buffer must hold ", local_input.numel(), " elements of ",
      local_input.scalar_type(), ", it has ", symm_buffer.numel(), " of ", symm_buffer.scalar_type());
  const at::Tensor input = symm_buffer.flatten().narrow(0, 0, local_input.numel()).view(local_input.sizes());
  input.copy_(local_input);
  return one_shot_out(input, std::move(reduce_op), std::move(group), std::move(out));
}

at::Tensor one_shot_copy(
    const at::Tensor& symm_buffer, const at::Tensor& local_input, std::string reduce_op, std::string group) {
  return one_shot_copy_out(
      symm_buffer, local_input, std::move(reduce_op), std::move(group), at::empty_like(local_input));
}

// Each rank reduces its share, then writes it to everyone.
at::Tensor two_shot(at::Tensor input, std::string reduce_op, std::string group) {
  check_sum(reduce_op, "two_shot_all_reduce_");
  const Symmetric symmetric(input, group, "two_shot_all_reduce_");
  SymmetricMemory& memory = *symmetric.memory;
  const int64_t begin = input.numel() * memory.get_rank() / memory.get_world_size();
  const int64_t end = input.numel() * (memory.get_rank() + 1) / memory.get_world_size();
  const auto share = [=](const at::Tensor& tensor) { return tensor.view(-1).narrow(0, begin, end - begin); };
  memory.barrier(0, 0);
  const at::Tensor total = symmetric.sum(share);
  for (int rank = 0; rank < memory.get_world_size(); ++rank) share(symmetric.on(rank)).copy_(total);
  memory.barrier(0, 0);
  return input;
}

at::Tensor two_shot_out(at::Tensor input, std::string reduce_op, std::string group, at::Tensor output) {
  return output.copy_(two_shot(std::move(input), std::move(reduce_op), std::move(group)));
}

at::Tensor reduce_scatter_out(at::Tensor input, std::string group, bool split_last_dim, at::Tensor output) {
  const Symmetric symmetric(input, group, "reduce_scatter_out");
  SymmetricMemory& memory = *symmetric.memory;
  const int64_t dim = split_last_dim ? -1 : 0;
  const int64_t rows = input.size(dim) / memory.get_world_size();
  const auto share = [&](const at::Tensor& tensor) { return tensor.narrow(dim, rows * memory.get_rank(), rows); };
  TORCH_CHECK_VALUE(
      rows * memory.get_world_size() == input.size(dim) && output.sizes() == share(input).sizes(),
      "reduce_scatter_out: an input of shape ", input.sizes(), " on ", memory.get_world_size(),
      " ranks does not give an output of shape ", output.sizes());
  memory.barrier(0, 0);
  output.copy_(symmetric.sum(share));
  memory.barrier(0, 0);
  return output;
}

at::Tensor memset32(at::Tensor input, int64_t offset, int64_t value, int64_t count) {
  TORCH_CHECK_TYPE(
      input.element_size() == 4 && input.dim() == 1,
      "memset32_: the input must be one-dimensional, of 4-byte elements");
  input.view(at::kInt).narrow(0, offset, count).fill_(static_cast<int32_t>(value));
  return input;
}

at::Tensor write_value32(at::Tensor input, int64_t offset, int64_t value) {
  return memset32(std::move(input), offset, value, 1);
}

TORCH_LIBRARY_IMPL(symm_mem, PrivateUse1, m) {
  m.impl("one_shot_all_reduce", &one_shot);
  m.impl("one_shot_all_reduce_out", &one_shot_out);
  m.impl("one_shot_all_reduce_copy", &one_shot_copy);
  m.impl("one_shot_all_reduce_copy_out", &one_shot_copy_out);
  m.impl("two_shot_all_reduce_", &two_shot);
  m.impl("two_shot_all_reduce_out", &two_shot_out);
  m.impl("reduce_scatter_out", &reduce_scatter_out);
  m.impl("memset32_", &memset32);
  m.impl("stream_write_value32_", &write_value32);
}

} // namespace

} // namespace neuron
