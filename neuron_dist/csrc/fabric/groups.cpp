#include "csrc/fabric/groups.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "csrc/fabric/communicator.h"

namespace neuron {

namespace {

std::mutex mutex;
std::set<Communicator*>& groups() {
  static auto* set = new std::set<Communicator*>(); // never destroyed: groups may outlive static objects
  return *set;
}

} // namespace

void add_group(Communicator& group) {
  std::lock_guard lock(mutex);
  groups().insert(&group);
}

void remove_group(Communicator& group) {
  std::lock_guard lock(mutex);
  groups().erase(&group);
}

void for_each_group(const std::function<void(Communicator&)>& visit) {
  std::lock_guard lock(mutex);
  for (Communicator* group : groups()) visit(*group);
}

std::string death_among(const std::vector<uint64_t>& global_ranks) {
  std::string found;
  for_each_group([&](Communicator& group) {
    for (int rank = 0; rank < group.size() && found.empty(); ++rank) {
      const bool asked =
          std::find(global_ranks.begin(), global_ranks.end(), group.global_rank(rank)) != global_ranks.end();
      if (asked && rank != group.rank() && group.peer(rank).dead()) found = group.cannot_answer(rank);
    }
  });
  return found;
}

} // namespace neuron
