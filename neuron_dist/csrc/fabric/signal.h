#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "csrc/fabric/deadline.h"

namespace neuron {

// How long a waiter burns its core before it sleeps. Spinning pays only while every rank has a core of its own;
// with more ranks than cores the awaited rank needs ours, so the waiter offers it at once.
struct SpinPolicy {
  int polls; // reads of the word with a pause between them
  int yields; // then offers of the core to another process
};

// A counter in shared memory that only grows (modulo 2^32) and that other processes wait for.
// std::atomic::wait would not do: its futexes are private to one process.
class alignas(64) Signal {
 public:
  uint32_t load() const { return value_.load(std::memory_order_acquire); }

  void set(uint32_t value) {
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  void increment() {
    value_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }

  void wake() { futex(FUTEX_WAKE, INT_MAX, nullptr); }

  // Returns once `ready(value)`. While asleep `tick` runs every 100 ms and at the deadline; it ends the wait by
  // throwing.
  template <class Ready, class Tick>
  void wait(const SpinPolicy& spin, const Deadline& deadline, Ready ready, Tick tick) {
    for (int i = 0; i < spin.polls; ++i) {
      if (ready(load())) return;
      pause();
    }
    for (int i = 0; i < spin.yields; ++i) {
      if (ready(load())) return;
      sched_yield();
    }
    Sleeper asleep(sleepers_);
    while (true) {
      const uint32_t seen = value_.load(std::memory_order_seq_cst);
      if (ready(seen)) return;
      const auto left = std::min(deadline.left(), std::chrono::milliseconds(100));
      const timespec nap{0, left.count() * 1'000'000 % 1'000'000'000};
      if (futex(FUTEX_WAIT, seen, &nap) != 0) tick(); // not on a wake-up: those are frequent
    }
  }

 private:
  struct Sleeper {
    explicit Sleeper(std::atomic<uint32_t>& count) : count(count) { count.fetch_add(1, std::memory_order_seq_cst); }
    ~Sleeper() { count.fetch_sub(1, std::memory_order_relaxed); }
    std::atomic<uint32_t>& count;
  };

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  long futex(int operation, uint32_t argument, const timespec* timeout) {
    return syscall(SYS_futex, &value_, operation, argument, timeout, nullptr, 0);
  }

  std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint32_t>::is_always_lock_free, "atomics in shared memory must not need a lock");

// Everyone waits until everyone has arrived. Calls are numbered from 1; a rank arrives at call n + 1 only after call
// n is complete. One word is waited for, whatever the number of ranks, so that a waiter sleeps once.
class Barrier {
 public:
  void arrive(uint32_t call, uint32_t ranks) {
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == call * ranks) complete_.set(call);
  }
  bool complete(uint32_t call) const { return reached(complete_.load(), call); }
  template <class Tick>
  void wait(uint32_t call, const SpinPolicy& spin, const Deadline& deadline, Tick tick) {
    complete_.wait(spin, deadline, [call](uint32_t value) { return reached(value, call); }, tick);
  }
  void wake() { complete_.wake(); }

 private:
  static bool reached(uint32_t value, uint32_t call) { return static_cast<int32_t>(value - call) >= 0; }

  alignas(64) std::atomic<uint32_t> arrived_{0};
  Signal complete_;
};

} // namespace neuron
