#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace neuron {

// Runs an operator's CPU kernel over the memory of its neuron arguments. Every operator on the device passes here
// unless it is registered on its own.
void run_cpu_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

} // namespace neuron
