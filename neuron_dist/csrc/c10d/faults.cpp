#include "csrc/c10d/faults.h"

#include <utility>

#include "csrc/fabric/faults.h"

namespace neuron {

namespace py = pybind11;

void bind_faults(py::module& m) {
  using Act = Fault::Act;
  using Point = Fault::Point;
  auto fault = py::class_<Fault>(m, "Fault", "Something that is to go wrong on purpose.");
  py::enum_<Act>(fault, "Act")
      .value("fabric", Act::fabric)
      .value("chip_down", Act::chip_down)
      .value("delay", Act::delay)
      .value("stop", Act::stop)
      .value("kill", Act::kill)
      .value("corrupt", Act::corrupt);
  py::enum_<Point>(fault, "Point")
      .value("call", Point::call)
      .value("inside", Point::inside)
      .value("after", Point::after);
  fault.def(
      py::init([](Act act, Point point, uint64_t call, double time, double seconds, uint64_t seed, int bit,
                  std::string text) { return Fault{act, point, call, time, seconds, seed, bit, std::move(text)}; }),
      py::arg("act"), py::arg("point"), py::arg("call"), py::arg("time"), py::arg("seconds"), py::arg("seed"),
      py::arg("bit"), py::arg("text"));
  m.def("add_fault", [](const Fault& fault) { Faults::instance().add(fault); }, py::arg("fault"));
}

} // namespace neuron
