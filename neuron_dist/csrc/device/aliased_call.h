#pragma once

#include <vector>

#include <torch/csrc/utils/pybind.h>

namespace neuron {

// Calls `function(arguments)`, code for the CPU such as inductor makes, with aliases in place of the neuron tensors of
// `device` in the list. What it allocates lands in the device's HBM. Of the list or tuple that it returns, the tensors
// that `adopted` marks are the device's. The function may empty the list, which ends its hold on what it was given.
pybind11::list call_on_aliases(
    const pybind11::function& function, pybind11::list arguments, int device, const std::vector<bool>& adopted);

} // namespace neuron
