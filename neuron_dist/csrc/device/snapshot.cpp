#include "csrc/device/snapshot.h"

#include <string>
#include <utility>

#include <torch/csrc/profiler/python/combined_traceback.h>

#include "csrc/device/allocator.h"
#include "csrc/device/arena.h"
#include "csrc/device/history.h"

namespace neuron {

namespace {

namespace py = pybind11;

// Hands out dictionaries and gives them their "frames" once all tracebacks are known: symbolizing is cheaper in one go.
class Frames {
 public:
  void add(py::dict entry, const Traceback& traceback) {
    if (traceback) {
      waiting_.emplace_back(std::move(entry), traceback);
    } else {
      entry["frames"] = py::list();
    }
  }
  void fill() {
    std::vector<torch::CapturedTraceback*> tracebacks;
    for (const auto& [entry, traceback] : waiting_) tracebacks.push_back(traceback.get());
    const std::vector<py::object> frames = torch::py_symbolize(tracebacks);
    for (size_t i = 0; i < waiting_.size(); ++i) waiting_[i].first["frames"] = frames[i];
  }

 private:
  std::vector<std::pair<py::dict, Traceback>> waiting_;
};

py::dict describe(const Segment& segment, int device, Frames& frames) {
  py::dict made;
  py::list blocks;
  size_t total = 0, allocated = 0, requested = 0;
  for (const Block& block : segment) {
    py::dict entry;
    entry["address"] = reinterpret_cast<uint64_t>(block.address);
    entry["size"] = block.size;
    entry["requested_size"] = block.requested;
    entry["state"] = block.in_use ? "active_allocated" : "inactive";
    frames.add(entry, block.traceback);
    blocks.append(std::move(entry));
    total += block.size;
    if (!block.in_use) continue;
    allocated += block.size;
    requested += block.requested;
  }
  made["device"] = device;
  made["address"] = reinterpret_cast<uint64_t>(segment.front().address);
  made["total_size"] = total;
  made["allocated_size"] = allocated;
  made["active_size"] = allocated;
  made["requested_size"] = requested;
  made["stream"] = 0;
  made["segment_type"] = segment.front().pool == Pool::kSmall ? "small" : "large";
  made["segment_pool_id"] = py::make_tuple(0, 0);
  made["is_expandable"] = false;
  made["blocks"] = std::move(blocks);
  frames.add(made, nullptr);
  return made;
}

py::dict describe(const MemoryEvent& event, Frames& frames) {
  py::dict made;
  made["action"] = event.action;
  made[event.action == std::string("oom") ? "device_free" : "addr"] = event.address;
  made["size"] = event.size;
  made["stream"] = 0;
  made["time_us"] = event.microseconds;
  frames.add(made, event.traceback);
  return made;
}

} // namespace

py::dict memory_snapshot() {
  Frames frames;
  py::list segments, traces;
  for (int device = 0; device < Arena::device_count(); ++device) {
    if (!heap_exists(static_cast<c10::DeviceIndex>(device))) continue;
    for (const Segment& segment : heap(static_cast<c10::DeviceIndex>(device)).segments()) {
      segments.append(describe(segment, device, frames));
    }
  }
  for (const auto& events : recorded_events()) {
    py::list trace;
    for (const MemoryEvent& event : events) trace.append(describe(event, frames));
    traces.append(std::move(trace));
  }
  while (traces.size() < static_cast<size_t>(Arena::device_count())) traces.append(py::list());
  frames.fill();
  py::dict snapshot;
  snapshot["segments"] = std::move(segments);
  snapshot["device_traces"] = std::move(traces);
  return snapshot;
}

} // namespace neuron
