#include "csrc/c10d/bindings.h"

#include <pybind11/chrono.h>

#include "csrc/c10d/faults.h"
#include "csrc/c10d/local.h"
#include "csrc/c10d/planner.h"
#include "csrc/c10d/process_group.h"
#include "csrc/c10d/recorder.h"

namespace neuron {

namespace py = pybind11;

void bind_c10d(py::module& m) {
  py::module::import("torch._C._distributed_c10d"); // registers the base classes
  bind_plan(m);
  bind_faults(m);
  bind_local(m);
  bind_recorder(m);
  auto backend = py::class_<ProcessGroupNeuron, c10d::Backend, c10::intrusive_ptr<ProcessGroupNeuron>>(
      m, "ProcessGroupNeuron", "The torch.distributed backend \"neuron\".");

  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(
      backend, "Options", "What `pg_options` of the backend \"neuron\" may set.")
      .def(
          py::init([](std::chrono::milliseconds timeout, std::string topology, std::string algorithm,
                      std::string reduction) {
            auto options = c10::make_intrusive<Options>(timeout);
            options->topology = std::move(topology);
            options->algorithm = std::move(algorithm);
            options->reduction = std::move(reduction);
            return options;
          }),
          py::arg("timeout") = std::chrono::milliseconds(kBackendDefaultTimeout), py::kw_only(),
          py::arg("topology") = "", py::arg("algorithm") = "", py::arg("reduction") = "")
      .def_readwrite("topology", &Options::topology)
      .def_readwrite("algorithm", &Options::algorithm)
      .def_readwrite("reduction", &Options::reduction)
      .def("__copy__", [](const Options& self) { return c10::make_intrusive<Options>(self); })
      .def("__deepcopy__", [](const Options& self, const py::dict&) { return c10::make_intrusive<Options>(self); });

  backend
      .def(
          py::init<const c10::intrusive_ptr<c10d::Store>&, int, int, c10::intrusive_ptr<Options>>(), py::arg("store"),
          py::arg("rank"), py::arg("size"), py::arg("options"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &ProcessGroupNeuron::options)
      .def("leave", &ProcessGroupNeuron::leave, "Leave the group at once; works under way end with an error.")
      .def("_start_time_estimate", &ProcessGroupNeuron::start_time_estimate)
      .def("_end_time_estimate", &ProcessGroupNeuron::end_time_estimate)
      // Called on ranks outside a new group, where NCCL needs them to take part.
      .def("perform_nocolor_split", [](ProcessGroupNeuron&, const at::Device&) {}, py::arg("device"));
}

} // namespace neuron
