#include "csrc/c10d/interrupts.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <torch/csrc/utils/pybind.h>

namespace neuron {

void check_signals() {
  static thread_local const bool is_main = syscall(SYS_gettid) == getpid();
  if (!is_main || !Py_IsInitialized()) return;
  const pybind11::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
}

} // namespace neuron
