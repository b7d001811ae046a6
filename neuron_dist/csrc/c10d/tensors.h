#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "csrc/fabric/communicator.h"

namespace neuron {

// The memory of one tensor as the fabric takes it: the tensor itself, or a contiguous copy where the tensor is strided,
// or in HBM where peers touch it and it lies elsewhere. A copy has the tensor's contents only if `filled`.
at::Tensor lend(const at::Tensor& tensor, bool in_hbm, bool filled);
// Copies what was lent back, if it is a copy.
void give_back(const at::Tensor& tensor, const at::Tensor& lent);
Buffer buffer_of(const at::Tensor& lent);

// A tensor whose contiguous elements are the next segments of a Collective's inputs or outputs.
struct Segments {
  at::Tensor tensor;
  std::vector<uint64_t> bytes; // of each segment; they add up to the tensor
};

// One rank's side of a collective, in tensors. Running it lends the fabric their memory where it can, and contiguous
// copies in HBM where it cannot: the tensor is on the CPU and peers touch it, or it is strided.
class TensorCollective {
 public:
  Collective call; // without buffers
  std::vector<Segments> inputs;
  std::vector<Segments> outputs; // may hold the tensors of `inputs`
  std::optional<at::Tensor> factor; // of PREMUL_SUM: scales this rank's inputs, in their dtype

  // See Communicator::run.
  Outcome run(Communicator& communicator, double ready, const Deadline& deadline);
  double price(Communicator& communicator); // simulated seconds

 private:
  at::Tensor scaled(const at::Tensor& tensor) const;
};

} // namespace neuron
