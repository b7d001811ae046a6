#include "csrc/c10d/call_site.h"

#include <torch/csrc/utils/pybind.h>

namespace neuron {

namespace py = pybind11;

std::string call_site(torch::CapturedTraceback& traceback) {
  if (!Py_IsInitialized()) return {};
  const py::gil_scoped_acquire acquired;
  const auto torch_folder = py::module_::import("torch").attr("__path__").attr("__getitem__")(0).cast<std::string>();
  const auto symbolized = torch::symbolize({&traceback});
  for (const auto index : symbolized.tracebacks.at(0)) {
    const auto& frame = symbolized.all_frames.at(index);
    const bool is_with = frame.filename.find("/contextlib.py") != std::string::npos; // the end of a `with`
    if (is_with || frame.filename.rfind(torch_folder, 0) == 0) continue;
    return frame.filename + ":" + std::to_string(frame.lineno) + " in " + frame.funcname;
  }
  return {};
}

std::string current_call_site() {
  const auto traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/false, /*cpp=*/false);
  return call_site(*traceback);
}

} // namespace neuron
