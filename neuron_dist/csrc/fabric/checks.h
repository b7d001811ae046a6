#pragma once

#include <vector>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/program.h"

namespace neuron {

// The checking mode, NEURON_SIM_CHECK=1: inputs are searched for NaN, outputs and scratch are filled with NaN, async
// operations are run late, programs and buffers are checked as below. Results stay the same.
bool checking();

// Of the programs of all ranks, by rank, for a call whose sizes are the same everywhere: that each stays within its
// buffers, that every byte of every output is written, once, and, if peers touch the buffers themselves, that nobody
// reads what another rank writes in place. Throws RuntimeError.
void check_programs(const Collective& call, const std::vector<Program>& programs, bool shared_outputs);

// That this rank's outputs do not lie where peers still read its inputs; in place means the very same buffer. Throws
// ValueError.
void check_overlaps(const Collective& call, int rank);

} // namespace neuron
