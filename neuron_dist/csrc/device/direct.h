#pragma once

#include <torch/library.h>

namespace neuron {

// Registers the operators that a training step calls most with kernels that call torch's CPU kernel at once. What they
// do is what the fallback does, but for boxing the arguments, which costs as much as a kernel on a small tensor.
void register_direct_calls(torch::Library& library);

} // namespace neuron
