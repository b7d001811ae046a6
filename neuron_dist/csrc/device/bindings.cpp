#include "csrc/device/bindings.h"

#include <pybind11/stl.h>

#include "csrc/device/aliased_call.h"
#include "csrc/device/allocator.h"
#include "csrc/device/arena.h"
#include "csrc/device/generator.h"
#include "csrc/device/history.h"
#include "csrc/device/process.h"
#include "csrc/device/snapshot.h"
#include "csrc/device/stream.h"

namespace neuron {

void bind_device(pybind11::module_& module) {
  module.def(
      "configure_devices",
      [](int count, size_t capacity, int initial) {
        Arena::configure(count, capacity);
        set_initial_device(initial);
      },
      pybind11::arg("count"), pybind11::arg("capacity"), pybind11::arg("initial"));
  module.def("default_generator", [](int device) { return default_generator(static_cast<c10::DeviceIndex>(device)); });
  module.def(
      "simulated_time", [](int device) { return stream_time(current_stream(static_cast<c10::DeviceIndex>(device))); });
  module.def("default_stream", [](int device) { return default_stream(static_cast<c10::DeviceIndex>(device)); });
  module.def("is_in_bad_fork", &in_bad_fork);
  module.def("check_not_forked", &check_not_forked);
  module.def("set_memory_fraction", [](int device, double fraction) {
    heap(static_cast<c10::DeviceIndex>(device)).set_memory_fraction(fraction);
  });
  module.def(
      "record_memory_history",
      [](bool events, int stacks, bool cpp_frames, size_t max_events, bool clear) {
        set_history({events, static_cast<Stacks>(stacks), cpp_frames, max_events}, clear);
      },
      pybind11::arg("events"), pybind11::arg("stacks"), pybind11::arg("cpp_frames"), pybind11::arg("max_events"),
      pybind11::arg("clear"));
  module.def("memory_snapshot", &memory_snapshot);
  module.def(
      "call_on_aliases", &call_on_aliases, pybind11::arg("function"), pybind11::arg("arguments"),
      pybind11::arg("device"), pybind11::arg("adopted"));
}

} // namespace neuron
