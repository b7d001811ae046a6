// The native module `neuron_dist._C`: one binding function per part.
#include <torch/csrc/utils/pybind.h>

#include "csrc/c10d/bindings.h"
#include "csrc/device/bindings.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.attr("built_for_torch") = NEURON_BUILT_FOR_TORCH;
  neuron::bind_device(m);
  neuron::bind_c10d(m);
}
