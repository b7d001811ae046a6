#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "csrc/fabric/collective.h"

namespace neuron {

// A place in some rank's buffers: `segment` of its inputs (as a source) or outputs (as a destination).
struct Place {
  int rank;
  int segment;
  uint64_t offset; // bytes into the segment
};

// In which order sources are combined, in postfix: an index pushes that source, kCombine combines the top two.
using Order = std::vector<int16_t>;
constexpr int16_t kCombine = -1;

// Combines the sources and writes the result to every destination. One source is a copy.
struct Instruction {
  uint64_t bytes;
  std::vector<Place> sources;
  std::vector<Place> destinations;
  std::shared_ptr<const Order> order = nullptr; // null: from first to last
};

// What one rank does once all ranks have arrived. The programs of all ranks together are the collective; no
// destination is written by two of them.
using Program = std::vector<Instruction>;

// The program that reads the peers' memory directly and reduces in rank order. `shared_outputs`: whether peers may
// write this rank's outputs; if so the ranks split the work of an all_reduce or reduce, else each computes its own
// result in full.
Program direct_program(const Collective& call, int rank, int size, bool shared_outputs);

} // namespace neuron
