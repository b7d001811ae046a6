#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace neuron {

class Communicator;

// What a rank says, in each of its groups, while its program is held up in a collective: whom it waits for, and, by
// what that rank says, whom that one waits for. A rank that finds itself at the end stands in a circle.
class WaitNote {
 public:
  struct Hop {
    uint64_t rank, awaited; // global
    uint32_t certain; // the rank's program can do nothing else meanwhile
    char text[300];
  };
  static constexpr size_t kMostHops = 8;

  // One writer. `closed`: these waits are a circle for certain.
  void write(const std::vector<Hop>& hops, bool closed);
  std::vector<Hop> read() const; // none also while it is being written
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint32_t> version_; // odd while it is written
  std::atomic<bool> closed_;
  uint32_t count_;
  Hop hops_[kMostHops];
};

// A wait of this process's program for the others to come to a collective; looks for circles through other groups.
class Standstill {
 public:
  Standstill(Communicator& communicator, std::function<std::string()> call_site);
  ~Standstill();

  // Every 100 ms while the program is held up and these ranks of the group have not come. The circle in which this
  // rank stands, once that is certain: a line for each wait in it. Else empty.
  std::string look(const std::vector<int>& absent);

 private:
  std::vector<WaitNote::Hop> announced() const;

  Communicator& communicator_;
  std::function<std::string()> call_site_;
  std::string own_; // what this rank waits in
  std::vector<WaitNote::Hop> told_;
  bool closed_ = false;
  std::string seen_; // a circle
  int looks_ = 0;
  int times_seen_ = 0;
};

// Threads that call collectives. With one, a program that is held up cannot come to another group's collective.
void note_calling_thread();
bool is_calling_thread(); // the one

} // namespace neuron
