#pragma once

#include <cstdint>
#include <vector>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/program.h"

namespace neuron {

// The buffers of all ranks as this process sees them: address of segment `s` of rank `r` at [r * stride + s].
class BufferTable {
 public:
  BufferTable(int ranks, int stride) : stride_(stride), addresses_(static_cast<size_t>(ranks) * stride) {}

  char*& at(int rank, int segment) { return addresses_[static_cast<size_t>(rank) * stride_ + segment]; }
  char* at(const Place& place) const {
    return addresses_[static_cast<size_t>(place.rank) * stride_ + place.segment] + place.offset;
  }

 private:
  int stride_;
  std::vector<char*> addresses_;
};

struct Arithmetic {
  c10::ScalarType dtype;
  Reduction reduction;
  int ranks; // what an average divides by
  bool round_each_step; // to the dtype, as a wire would; else 16-bit and 8-bit floats round once, at the end
};

// Runs one rank's program: every reduction block by block in cache, one pass over memory. Throws TypeError if the
// reduction is not defined for the dtype.
void execute(
    const Program& program, const BufferTable& inputs, const BufferTable& outputs, const Arithmetic& arithmetic);

} // namespace neuron
