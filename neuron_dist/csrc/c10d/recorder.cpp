#define FMT_HEADER_ONLY // the flight recorder formats with fmt, which torch does not export
#include "csrc/c10d/recorder.h"

#include <algorithm>
#include <chrono>

#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/FlightRecorderDetail.hpp>

#include "csrc/c10d/call_site.h"

template <>
float c10d::getDurationFromEvent<neuron::HostEvent>(neuron::HostEvent& start, neuron::HostEvent& end) {
  return static_cast<float>(end.nanoseconds - start.nanoseconds) * 1e-6f; // milliseconds
}

namespace neuron {

namespace py = pybind11;

namespace {

using FlightRecorder = c10d::FlightRecorder<HostEvent>;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// torch's analyzer refuses names of backends that it does not list; this one it lists, and means nothing by it.
constexpr const char* kPrefix = "hccl:";

constexpr size_t kGroupsKept = 1024;

} // namespace

Recorder& Recorder::instance() {
  static auto* recorder = new Recorder(); // never destroyed, as the flight recorder
  return *recorder;
}

Recorder::Recorder() { FlightRecorder::get()->record_accelerator_version("neuron-dist"); }

void Recorder::add_group(const Group& group, std::vector<uint64_t> global_ranks) {
  FlightRecorder::get()->record_pg_ranks(group.name, global_ranks);
  std::lock_guard lock(mutex_);
  const auto& name = std::get<0>(group.name);
  Waits& waits = waits_[name] = {};
  waits.by_rank.resize(global_ranks.size());
  waits.global_ranks = std::move(global_ranks);
  if (std::find(groups_.begin(), groups_.end(), name) == groups_.end()) groups_.push_back(name);
  for (; groups_.size() > kGroupsKept; groups_.pop_front()) waits_.erase(groups_.front());
}

std::shared_ptr<Record> Recorder::begin(
    const Group& group, const char* op, const std::string& flight_op, uint64_t sequence_number,
    const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs, std::chrono::milliseconds timeout,
    bool is_transfer) {
  auto record = std::make_shared<Record>();
  record->group = std::get<0>(group.name);
  record->op = op;
  record->sequence_number = sequence_number;
  if (flight_op.empty()) return record;
  record->flight_id = FlightRecorder::get()->record(
      group.id, group.name, is_transfer ? 0 : sequence_number, is_transfer ? sequence_number : 0, sequence_number,
      kPrefix + flight_op, inputs, outputs, &record->started, &record->ended, timeout,
      std::make_shared<c10d::ProcessGroupStatus>(), is_transfer);
  return record;
}

std::string Recorder::call_site(const Record& record) const {
  const auto entry = FlightRecorder::get()->getEntry(record.flight_id);
  return entry && entry->traceback_ ? neuron::call_site(*entry->traceback_) : std::string();
}

void Recorder::start(Record& record) {
  record.host_start = now();
  record.started.nanoseconds = record.host_start;
}

void Recorder::end(const std::shared_ptr<Record>& record, const Outcome& outcome) {
  record->host_end = now();
  record->ended.nanoseconds = record->host_end;
  record->start = outcome.start;
  record->end = outcome.end;
  if (outcome.plan) {
    record->algorithm = outcome.plan->algorithm;
    record->steps = outcome.plan->steps;
    record->bytes = outcome.bytes;
  }
  FlightRecorder::get()->retire_id(record->flight_id);
  std::lock_guard lock(mutex_);
  if (const auto found = waits_.find(record->group); outcome.last >= 0 && found != waits_.end()) {
    Waits& waits = found->second;
    ++waits.calls;
    waits.last_call = record->sequence_number;
    waits.last_op = record->op;
    waits.waited_ns += outcome.waited_ns;
    waits.by_rank[outcome.last].times_last += 1;
    waits.by_rank[outcome.last].held_up_ns += outcome.held_up_ns;
  }
  ended_.push_back(record);
  while (ended_.size() > capacity_) ended_.pop_front();
}

void Recorder::set_capacity(size_t capacity) {
  std::lock_guard lock(mutex_);
  capacity_ = capacity;
}

std::vector<std::shared_ptr<Record>> Recorder::records() const {
  std::lock_guard lock(mutex_);
  return {ended_.begin(), ended_.end()};
}

std::map<std::string, Waits> Recorder::waits() const {
  std::lock_guard lock(mutex_);
  return waits_;
}

std::string Recorder::flight_dump(bool with_stacks) {
  return FlightRecorder::get()->dump(std::nullopt, /*includeCollectives=*/true, with_stacks, /*onlyActive=*/false);
}

void bind_recorder(py::module& m) {
  py::class_<Record, std::shared_ptr<Record>>(m, "Record", "One operation of this process.")
      .def_readonly("group", &Record::group)
      .def_readonly("op", &Record::op)
      .def_readonly("sequence_number", &Record::sequence_number)
      .def_readonly("bytes", &Record::bytes)
      .def_readonly("algorithm", &Record::algorithm)
      .def_readonly("steps", &Record::steps)
      .def_readonly("start", &Record::start)
      .def_readonly("end", &Record::end)
      .def_readonly("host_start", &Record::host_start)
      .def_readonly("host_end", &Record::host_end)
      .def_readonly("flight_id", &Record::flight_id);
  m.def("waits", [] {
    py::dict groups;
    for (const auto& [name, waits] : Recorder::instance().waits()) {
      py::list times_last, held_up;
      for (const auto& each : waits.by_rank) {
        times_last.append(each.times_last);
        held_up.append(static_cast<double>(each.held_up_ns) * 1e-9);
      }
      groups[py::str(name)] = py::dict(
          py::arg("ranks") = waits.global_ranks, py::arg("calls") = waits.calls, py::arg("last_call") = waits.last_call,
          py::arg("last_op") = waits.last_op, py::arg("waited_s") = static_cast<double>(waits.waited_ns) * 1e-9,
          py::arg("times_last") = times_last, py::arg("held_up_s") = held_up);
    }
    return groups;
  });
  m.def("records", [] { return Recorder::instance().records(); });
  m.def("keep_records", [](size_t capacity) { Recorder::instance().set_capacity(capacity); }, py::arg("capacity"));
  m.def(
      "flight_dump",
      [](bool with_stacks) {
        std::string dump;
        {
          const py::gil_scoped_release released;
          dump = Recorder::instance().flight_dump(with_stacks);
        }
        return py::bytes(dump);
      },
      py::arg("with_stacks") = true);
}

} // namespace neuron
