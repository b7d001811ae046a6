#pragma once

#include <cstdint>
#include <vector>

#include "csrc/fabric/collective.h"

namespace neuron {

// A place in some rank's buffers: `segment` of its inputs (as a source) or outputs (as a destination).
struct Place {
  int rank;
  int segment;
  uint64_t offset; // bytes into the segment
};

// Reduces the sources, in their order, and writes the result to every destination. One source is a copy.
struct Instruction {
  uint64_t bytes;
  std::vector<Place> sources;
  std::vector<Place> destinations;
};

// What one rank does once all ranks have arrived. The programs of all ranks together are the collective; no
// destination is written by two of them.
using Program = std::vector<Instruction>;

// The program that reads the peers' memory directly and reduces in rank order. `shared_outputs`: whether peers may
// write this rank's outputs; if so the ranks split the work of an all_reduce or reduce, else each computes its own
// result in full.
Program direct_program(const Collective& call, int rank, int size, bool shared_outputs);

} // namespace neuron
