#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

// Binds the programs of all ranks of a collective: `execute_locally` runs them one after the other in this process,
// `check_programs` holds them against their buffers.
void bind_local(pybind11::module& m);

} // namespace neuron
