#pragma once

#include <optional>

#include <torch/csrc/utils/pybind.h>

namespace neuron {

// Lets go of Python's lock, if this thread holds it, for as long as the scope waits for another thread.
class WithoutGil {
 public:
  WithoutGil() {
    if (Py_IsInitialized() && PyGILState_Check()) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

} // namespace neuron
