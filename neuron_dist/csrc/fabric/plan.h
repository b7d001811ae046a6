#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "csrc/fabric/collective.h"

namespace neuron {

// In which order sources are combined, in postfix: a rank pushes what it gives, kCombine combines the top two.
using Order = std::vector<int32_t>;
constexpr int32_t kCombine = -1;

// What a schedule says of the sum, whatever the size: which order each part of the op's space is summed in.
struct ReductionOrders {
  struct Chunk {
    uint64_t begin, end; // in units
    uint32_t order; // index into `orders`
  };

  uint64_t units; // of the space, which is the buffer; of a reduce_scatter, all ranks' blocks
  std::vector<Chunk> chunks; // ascending, without gaps
  std::vector<std::shared_ptr<const Order>> orders;
};

// How the fabric does one collective of one size.
struct Plan {
  struct Use {
    uint32_t link; // numbered alike in all groups of this process
    double seconds; // of traffic on it, simulated
  };

  std::string algorithm;
  int steps = 0;
  double seconds = 0; // simulated
  std::shared_ptr<const ReductionOrders> orders; // null: in rank order, rounded once
  std::vector<Use> links; // ascending
};

// What is to be planned: `bytes` as nccl-tests counts them.
struct Question {
  Op op;
  uint64_t bytes;
  int root; // of a rooted op; the sender of a send_recv
  int peer = -1; // the receiver of a send_recv
  uint64_t faults = 0; // of the fabric that have struck; see Faults
};

// Makes plans, deterministically: every rank asks for itself, once per kind of call.
using Planner = std::function<std::shared_ptr<const Plan>(const Question& question)>;

} // namespace neuron
