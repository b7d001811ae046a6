#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/plan.h"

namespace neuron {

// A place in some rank's buffers: `segment` of its inputs (as a source) or outputs (as a destination).
struct Place {
  int rank;
  int segment;
  uint64_t offset; // bytes into the segment
};

// Combines the sources and writes the result to every destination. One source is a copy.
struct Instruction {
  uint64_t bytes;
  std::vector<Place> sources;
  std::vector<Place> destinations;
  std::shared_ptr<const Order> order = nullptr; // over indices of sources; null: from first to last
};

// What one rank does once all ranks have arrived. The programs of all ranks together are the collective; no
// destination is written by two of them.
using Program = std::vector<Instruction>;

// The program that reads the peers' memory directly, reducing in the orders that the plan states or, with null, in
// rank order. `shared_outputs`: whether peers may write this rank's outputs; if so the ranks split the work of an
// all_reduce or reduce, else each computes its own result in full.
Program make_program(const Collective& call, const ReductionOrders* orders, int rank, int size, bool shared_outputs);

} // namespace neuron
