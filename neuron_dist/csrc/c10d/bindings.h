#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

void bind_c10d(pybind11::module& m);

} // namespace neuron
