#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

void bind_device(pybind11::module_& module);

} // namespace neuron
