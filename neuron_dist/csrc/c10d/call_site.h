#pragma once

#include <string>

#include <torch/csrc/profiler/combined_traceback.h>

namespace neuron {

// The user's line in a stack, "train.py:41 in step": the innermost that is not torch's own. Empty if there is none, as on
// the threads of autograd. Takes Python's lock.
std::string call_site(torch::CapturedTraceback& traceback);
std::string current_call_site();

} // namespace neuron
