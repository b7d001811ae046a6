#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/fabric/deadline.h"
#include "csrc/fabric/fd.h"
#include "csrc/fabric/peer.h"

namespace neuron {

struct Meeting {
  Fd control; // memory of the group, made by rank 0
  std::vector<std::shared_ptr<Peer>> peers; // by rank, this one included
};

// Brings the processes of a group together: each leaves with a handle to everyone's HBM, a pidfd of everyone and the
// group's control memory. The descriptors travel over a UNIX socket in the abstract namespace (no file, gone with the
// process), whose name rank 0 puts in the store. `watch` runs every 100 ms and throws if waiting is in vain. Throws
// DistBackendError naming who is missing at the deadline.
Meeting meet(
    c10d::Store& store, int rank, int size, const Deadline& deadline, const std::function<void()>& watch = [] {});

} // namespace neuron
