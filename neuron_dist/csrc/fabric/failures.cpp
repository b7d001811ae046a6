// Communicator's waits, and what ends them: deaths, timeouts, circles, errors of others.

#include <sstream>

#include <c10/util/Exception.h>

#include "csrc/fabric/communicator.h"
#include "csrc/fabric/groups.h"
#include "csrc/fabric/signature.h"
#include "csrc/fabric/standstill.h"

namespace neuron {

namespace {

constexpr uint32_t kFailureWriting = 1;
constexpr uint32_t kFailureWritten = 2;

} // namespace

void Communicator::wait_for(
    Barrier& barrier, std::atomic<uint32_t> RankState::* progress, const char* what, const Deadline& deadline,
    const CallSite& call_site) {
  const bool arriving = progress == &RankState::arrived;
  const uint32_t number = arriving ? call_ : departures_;
  auto where = [&] { return "collective #" + std::to_string(call_) + " of " + group_label(); };
  auto missing = [&] {
    std::vector<int> ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if ((control_.rank(rank).*progress).load(std::memory_order_relaxed) != call_) ranks.push_back(rank);
    }
    return ranks;
  };
  Standstill standstill(*this, call_site);
  barrier.wait(number, spin_, deadline, [&] {
    check();
    caller_.while_waiting();
    const auto circle = arriving && caller_.held_up() ? standstill.look(missing()) : std::string();
    if (!circle.empty() && !barrier.complete(number)) {
      give_up(
          where() +
          " cannot start: ranks wait for each other in a circle. All ranks must call the collectives of "
          "different groups in one order." +
          circle);
    }
    for (int rank = 0; rank < size_; ++rank) {
      const auto reason = cannot_answer(rank);
      if (!reason.empty() && !barrier.complete(number)) give_up(reason + " during " + where());
    }
    if (!deadline.passed() || barrier.complete(number)) return;
    std::ostringstream text;
    for (const int rank : missing()) text << (text.tellp() > 0 ? ", " : "") << absent(rank);
    give_up(
        where() + " reached its timeout of " + std::to_string(deadline.timeout().count()) + " ms: still waiting for " +
        text.str() + " " + what);
  });
}

std::string Communicator::describe_wait(const std::string& call_site) const {
  std::ostringstream text;
  text << " in " << Signatures(control_, global_ranks_, call_).describe(rank_) << " #" << call_ << " of "
       << group_label() << (call_site.empty() ? "" : " at ") << call_site;
  return text.str();
}

std::string Communicator::absent(int rank) const {
  const uint32_t last = control_.rank(rank).arrived.load(std::memory_order_acquire);
  std::ostringstream text;
  text << rank_name(rank) << " (pid " << peers_[rank]->pid();
  if (peers_[rank]->stopped()) text << ", stopped by a signal";
  if (last == 0) {
    text << ", no call yet";
  } else {
    text << ", last call #" << last << ' ' << Signatures(control_, global_ranks_, last).describe(rank);
  }
  const auto waits = note_of(rank);
  if (!waits.empty()) text << "; " << waits[0].text;
  text << ')';
  return text.str();
}

void Communicator::fail(const std::string& reason) {
  GroupState& group = control_.group();
  uint32_t none = 0;
  if (!group.failed.compare_exchange_strong(none, kFailureWriting)) return;
  reason.copy(group.failure, sizeof group.failure - 1);
  group.failed.store(kFailureWritten, std::memory_order_release);
  for (int rank = 0; rank < size_; ++rank) control_.rank(rank).bell.increment();
}

void Communicator::check() const {
  const GroupState& group = control_.group();
  TORCH_CHECK_WITH(DistBackendError, group.failed.load(std::memory_order_acquire) != kFailureWritten, group.failure);
  TORCH_CHECK_WITH(
      DistBackendError, control_.rank(rank_).closed.load(std::memory_order_acquire) == 0, group_label(),
      " has been destroyed on this rank");
}

void Communicator::give_up(const std::string& reason) {
  fail(reason);
  check();
  C10_THROW_ERROR(DistBackendError, reason); // another rank is just writing its own reason
}

void Communicator::set_caller(Caller caller) {
  caller_ = std::move(caller);
  add_group(*this);
}

void Communicator::leave() {
  remove_group(*this);
  control_.rank(rank_).closed.store(1, std::memory_order_release);
  control_.rank(rank_).bell.increment();
}

std::string Communicator::rank_name(int rank) const { return "rank " + std::to_string(global_ranks_[rank]); }

std::string Communicator::group_label() const {
  std::ostringstream text;
  text << "group '" << group_name_ << "' (rank";
  const char* separator = size_ > 1 ? "s " : " ";
  for (int rank = 0; rank < size_; ++rank) {
    text << separator << (rank == 8 && size_ > 9 ? "..." : std::to_string(global_ranks_[rank]));
    separator = ", ";
    if (rank == 8 && size_ > 9) break;
  }
  text << ')';
  return text.str();
}

std::string Communicator::cannot_answer(int rank) const {
  if (rank == rank_) return {};
  const auto pid = " (pid " + std::to_string(peers_[rank]->pid()) + ") ";
  if (peers_[rank]->dead()) return rank_name(rank) + pid + peers_[rank]->describe_death();
  if (control_.rank(rank).closed.load(std::memory_order_acquire))
    return rank_name(rank) + pid + "has destroyed the group";
  return {};
}

} // namespace neuron
