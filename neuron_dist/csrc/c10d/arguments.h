#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "csrc/c10d/tensors.h"

namespace neuron {

// From c10d's arguments to collectives. All throw ValueError or TypeError, naming the argument and what is wrong.

// The only tensor or list of a c10d argument, which is a vector because a rank once had several devices.
const at::Tensor& single(const std::vector<at::Tensor>& tensors, const char* what);
const std::vector<at::Tensor>& single(const std::vector<std::vector<at::Tensor>>& lists, const char* what);

// Checks that the backend can carry the tensor: dense, on neuron or the CPU.
void check_tensor(const at::Tensor& tensor, const char* what);
// Checks a list with a tensor for each rank, all of `like`'s dtype.
void check_list(const std::vector<at::Tensor>& list, int size, const at::Tensor& like, const char* what);
void check_root(int64_t root, int size);

// The tensor as one segment; cut into one equal part per rank; or cut by the rows of dimension 0 (evenly without
// splits).
Segments whole(const at::Tensor& tensor);
std::vector<Segments> wholes(const std::vector<at::Tensor>& tensors);
Segments equal_parts(const at::Tensor& tensor, int size, const char* what);
Segments row_parts(const at::Tensor& tensor, const std::vector<int64_t>& splits, int size, const char* what);

Reduction reduction_of(const c10d::ReduceOp& op);
// Fills in the reduction and the factor of PREMUL_SUM.
void set_reduction(TensorCollective& collective, const c10d::ReduceOp& op);

} // namespace neuron
