#include "csrc/device/aliased_call.h"

#include <torch/csrc/autograd/python_variable.h>

#include "csrc/device/alias.h"
#include "csrc/device/landing.h"
#include "csrc/device/process.h"

namespace neuron {

namespace py = pybind11;

py::list call_on_aliases(
    const py::function& function, py::list arguments, int device, const std::vector<bool>& adopted) {
  check_not_forked();
  const auto index = static_cast<c10::DeviceIndex>(device);
  const c10::Device place(c10::kPrivateUse1, index);
  Aliases aliases;
  std::vector<at::Tensor> given; // aliases do not hold them
  py::list swapped;
  for (const py::handle argument : arguments) {
    if (THPVariable_Check(argument.ptr())) {
      const at::Tensor& tensor = THPVariable_Unpack(argument.ptr());
      if (is_neuron(tensor)) {
        if (tensor.device() != place) check_joins(tensor, place, /*written=*/true, "a compiled graph", "");
        given.push_back(tensor);
        swapped.append(py::cast(aliases.alias(tensor, /*written=*/true)));
        continue;
      }
    }
    swapped.append(argument);
  }
  arguments.attr("clear")();
  py::object returned;
  {
    const Landing landing(index);
    returned = function(swapped);
  }
  aliases.write_back(place);
  py::list results;
  size_t position = 0;
  for (const py::handle value : returned) {
    if (position < adopted.size() && adopted[position] && THPVariable_Check(value.ptr())) {
      results.append(py::cast(aliases.adopt(THPVariable_Unpack(value.ptr()), place)));
    } else {
      results.append(value);
    }
    ++position;
  }
  return results;
}

} // namespace neuron
