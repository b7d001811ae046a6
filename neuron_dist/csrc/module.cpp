// The native module `neuron_dist._C`: one binding function per part.
#include <torch/csrc/utils/pybind.h>

#include "csrc/c10d/bindings.h"
#include "csrc/device/bindings.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  // autoload.py looks for this text in the file before it loads it into a torch that may be another.
  m.doc() = "neuron-dist built for torch " NEURON_BUILT_FOR_TORCH;
  neuron::bind_device(m);
  neuron::bind_c10d(m);
}
