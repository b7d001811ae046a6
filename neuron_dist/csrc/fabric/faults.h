#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "csrc/fabric/collective.h"

namespace neuron {

// Something that is to go wrong on purpose; stated in neuron_dist/faults.py.
struct Fault {
  enum class Act : uint8_t {
    fabric, // a link or a chip changes for good; a bit of Faults::fabric
    chip_down, // the chip under this process: every collective fails from then on
    delay,
    stop,
    kill,
    corrupt, // a bit of what the collective put out
  };
  // Where in a collective it strikes: as it is called, while its peers wait, after it.
  enum class Point : uint8_t { call, inside, after };

  Act act;
  Point point = Point::call;
  uint64_t call = 0; // the process's collective at which it strikes, counted from 1; 0: by `time`
  double time = 0; // simulated seconds: it strikes the first collective that is ready then
  double seconds = 0; // of a delay
  uint64_t seed = 0; // picks the bit
  int bit = 0; // of a fabric fault
  std::string text; // as it was stated
};

// What strikes one collective.
class Strikes {
 public:
  Strikes() = default;
  explicit Strikes(std::vector<Fault> faults) : faults_(std::move(faults)) {}

  // Delays, stops or kills this process as stated for the point; returns the delay, which takes simulated time too.
  double strike(Fault::Point point) const;
  void corrupt(const std::vector<Buffer>& outputs) const;
  // Stated text of a fault that takes this process's chip down; empty without one.
  std::string chip_down() const;

 private:
  std::vector<Fault> faults_;
};

// The faults stated in this process.
class Faults {
 public:
  static Faults& instance();

  // `fault.call` counts from the next collective.
  void add(Fault fault);
  // Counts a collective that could start at `ready`, in program order.
  Strikes next_collective(double ready);
  // Which fabric faults have struck, as bits.
  uint64_t fabric() const { return fabric_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> any_{false};
  std::atomic<uint64_t> fabric_{0};
  std::mutex mutex_;
  std::vector<Fault> waiting_;
  std::vector<Fault> lasting_; // struck, and do so ever after
};

} // namespace neuron
