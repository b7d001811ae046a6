#pragma once

#include <pybind11/pybind11.h>

namespace neuron {

// The segments and blocks of all devices and the recorded events, as torch.cuda.memory._snapshot gives them.
pybind11::dict memory_snapshot();

} // namespace neuron
