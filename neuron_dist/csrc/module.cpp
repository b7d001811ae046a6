// The native module `neuron_dist._C`: one binding function per part.
#include <torch/extension.h>

#include "csrc/c10d/bindings.h"
#include "csrc/device/arena.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.attr("built_for_torch") = NEURON_BUILT_FOR_TORCH;
  m.def("configure_arena", &neuron::Arena::configure, py::arg("device_count"), py::arg("capacity"));
  neuron::bind_c10d(m);
}
