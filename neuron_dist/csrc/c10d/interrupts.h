#pragma once

namespace neuron {

// Lets Python handle what signals have come, if this is its main thread; throws what a handler raised, such as
// KeyboardInterrupt. For waits that hold up the program.
void check_signals();

} // namespace neuron
