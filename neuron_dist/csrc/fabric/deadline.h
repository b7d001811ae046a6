#pragma once

#include <algorithm>
#include <chrono>

namespace neuron {

// Until when a wait may last.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;

  explicit Deadline(Milliseconds timeout) : timeout_(timeout), end_(Clock::now() + timeout) {}

  bool passed() const { return Clock::now() >= end_; }
  Milliseconds left() const {
    return std::max(Milliseconds(0), std::chrono::duration_cast<Milliseconds>(end_ - Clock::now()));
  }
  Milliseconds timeout() const { return timeout_; }

 private:
  Milliseconds timeout_;
  Clock::time_point end_;
};

} // namespace neuron
