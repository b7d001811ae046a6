#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "csrc/fabric/fd.h"

namespace neuron {

// What a process tells the others of itself when a group is made. Travels beside its arena and pidfd.
struct PeerInfo {
  pid_t pid;
  int32_t device_count;
  uint64_t capacity; // HBM bytes per device
};

// Another process of this host (or this one): its HBM, mapped here, and whether it lives.
// Groups share them: two groups with the same process map its memory once.
class Peer {
 public:
  // Takes the descriptors; returns the known peer if the arena is mapped already.
  static std::shared_ptr<Peer> open(const PeerInfo& info, Fd arena, Fd process);
  static PeerInfo self();

  Peer(const PeerInfo& info, Fd arena, Fd process, bool is_self);
  ~Peer();

  // The address here of a range of the peer's HBM. Throws on a range outside one device: it came from another process.
  char* map(uint64_t offset, uint64_t bytes);

  pid_t pid() const { return info_.pid; }
  bool dead() const;
  bool stopped() const; // by SIGSTOP or a debugger
  // "has exited", or how it died where the kernel still knows.
  std::string describe_death() const;

 private:
  std::optional<int> exit_status() const;
  char* window(uint64_t device);

  PeerInfo info_;
  Fd arena_;
  Fd process_;
  bool is_self_; // then its windows are the arena's own mapping
  std::vector<std::atomic<char*>> windows_; // one per device, mapped at first use
};

} // namespace neuron
