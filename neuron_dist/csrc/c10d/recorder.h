#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/FlightRecorder.hpp>

#include "csrc/fabric/communicator.h"

namespace neuron {

// A moment on the host, which torch's flight recorder asks whether it has come.
struct HostEvent {
  std::atomic<int64_t> nanoseconds{0};
  bool query() const { return nanoseconds.load() != 0; }
};

// One operation of this process.
struct Record {
  std::string group;
  std::string op;
  uint64_t sequence_number = 0;
  uint64_t bytes = 0; // as nccl-tests counts them
  std::string algorithm; // empty if nothing was planned
  int steps = 0;
  double start = 0, end = 0; // simulated seconds
  int64_t host_start = 0, host_end = 0; // nanoseconds of the host's clock since the epoch
  std::optional<size_t> flight_id; // of the flight recorder's entry
  HostEvent started, ended; // lent to the flight recorder until the operation ends
};

// What a group's collectives waited for on the host, as one of its ranks saw it.
struct Waits {
  struct ByRank {
    uint64_t times_last = 0;
    int64_t held_up_ns = 0; // how long the group would have waited less without it, summed over those times
  };

  std::vector<uint64_t> global_ranks;
  uint64_t calls = 0;
  uint64_t last_call = 0; // sequence number
  std::string last_op;
  int64_t waited_ns = 0; // this rank for others
  std::vector<ByRank> by_rank; // of the group
};

// Feeds torch's flight recorder, and keeps what it has no place for: algorithm and simulated time.
class Recorder {
 public:
  static Recorder& instance();

  struct Group {
    size_t id;
    std::tuple<std::string, std::string> name; // and description
  };

  void add_group(const Group& group, std::vector<uint64_t> global_ranks);
  // `flight_op`: as torch's analyzer names it; empty where it has no name for the operation.
  std::shared_ptr<Record> begin(
      const Group& group, const char* op, const std::string& flight_op, uint64_t sequence_number,
      const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs, std::chrono::milliseconds timeout,
      bool is_transfer);
  std::string call_site(const Record& record) const; // see call_site.h; empty if the flight recorder is off
  void start(Record& record); // it leaves the queue
  void end(const std::shared_ptr<Record>& record, const Outcome& outcome);

  // How many ended operations are kept; a trace asks for more than the default.
  void set_capacity(size_t capacity);
  std::vector<std::shared_ptr<Record>> records() const;
  // By the group's name, for the groups that were made last.
  std::map<std::string, Waits> waits() const;
  // The flight recorder's dump, as `torchfrtrace` reads it.
  std::string flight_dump(bool with_stacks);

 private:
  Recorder();

  mutable std::mutex mutex_;
  size_t capacity_ = 2000; // the flight recorder's own default
  std::deque<std::shared_ptr<Record>> ended_;
  std::map<std::string, Waits> waits_;
  std::deque<std::string> groups_; // in the order in which they were made
};

void bind_recorder(pybind11::module& m);

} // namespace neuron
