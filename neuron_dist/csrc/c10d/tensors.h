#pragma once

#include <optional>
#include <vector>

#include <ATen/ATen.h>

#include "csrc/fabric/communicator.h"

namespace neuron {

// The memory of one tensor as the fabric takes it: the tensor itself, or a contiguous copy where the tensor is strided,
// or in HBM where peers touch it and it lies elsewhere. A copy has the tensor's contents only if `filled`.
at::Tensor lend(const at::Tensor& tensor, bool in_hbm, bool filled);
// Throws ValueError if the tensor has a NaN; `what` and `whose` name it.
void check_no_nan(const at::Tensor& tensor, const std::string& what, const std::string& whose);
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
  Strikes strikes;

  // In the checking mode, in the call: throws ValueError at a NaN in the inputs, and fills what is to be written with
  // NaN.
  void check_call(const std::string& rank_name) const;
  // See Communicator. These come in this order, the first two on the calling thread.
  void prepare(Communicator& communicator);
  void issue(Communicator& communicator, double ready, bool in_program_order); // else it takes no turn on the links
  Outcome run(Communicator& communicator, const Deadline& deadline, const CallSite& call_site);

  double seconds() const; // simulated, once prepared

 private:
  at::Tensor scaled(const at::Tensor& tensor) const;
  void check_unchanged() const;

  std::shared_ptr<const Communicator::Prepared> prepared_;
  double ready_ = 0;
};

} // namespace neuron
