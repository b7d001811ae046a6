#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

// Binds `execute_locally`: the programs of all ranks of a collective, run one after the other in this process.
void bind_local(pybind11::module& m);

} // namespace neuron
