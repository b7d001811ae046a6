#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

void bind_faults(pybind11::module& m);

} // namespace neuron
