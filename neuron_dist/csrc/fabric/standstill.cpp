#include "csrc/fabric/standstill.h"

#include <algorithm>
#include <exception>
#include <thread>

#include "csrc/fabric/communicator.h"
#include "csrc/fabric/groups.h"

namespace neuron {

namespace {

// A circle that is seen so often, 100 ms apart, does not come from notes about to change.
constexpr int kLooksBeforeCertain = 3;

std::atomic<std::thread::id> calling_thread{};
std::atomic<bool> several_calling_threads{false};
std::atomic<bool> failed{false}; // the latest wait, and what it told still stands

// In every group of this process whose collectives are not under way themselves: there its peers may wait for it.
void tell(const Communicator& waiting, const std::vector<WaitNote::Hop>& hops, bool closed = false) {
  for_each_group([&](Communicator& group) {
    const bool held_up = &group == &waiting || group.idle();
    group.own_note().write(held_up ? hops : std::vector<WaitNote::Hop>{}, closed);
  });
}

std::string lines(const std::vector<WaitNote::Hop>& hops) {
  std::string text;
  for (const auto& hop : hops) text += std::string("\n  ") + hop.text;
  return text;
}

} // namespace

void WaitNote::write(const std::vector<Hop>& hops, bool closed) {
  const auto count = static_cast<uint32_t>(std::min(hops.size(), kMostHops));
  if (count == 0 && count_ == 0) return;
  version_.fetch_add(1, std::memory_order_acq_rel);
  count_ = count;
  std::copy_n(hops.begin(), count, hops_);
  version_.fetch_add(1, std::memory_order_acq_rel);
  closed_.store(closed, std::memory_order_release);
}

std::vector<WaitNote::Hop> WaitNote::read() const {
  const uint32_t version = version_.load(std::memory_order_acquire);
  if (version % 2 == 1) return {};
  std::vector<Hop> hops(hops_, hops_ + std::min<size_t>(count_, kMostHops));
  std::atomic_thread_fence(std::memory_order_acquire);
  return version_.load(std::memory_order_relaxed) == version ? hops : std::vector<Hop>{};
}

Standstill::Standstill(Communicator& communicator, std::function<std::string()> call_site)
    : communicator_(communicator), call_site_(std::move(call_site)) {
  if (failed.load(std::memory_order_relaxed) && failed.exchange(false)) tell(communicator_, {});
}

Standstill::~Standstill() {
  if (own_.empty()) return;
  // The others may be about to fail too: until this rank's next call they can still read why it did not come.
  failed = closed_ || std::uncaught_exceptions() > 0;
  if (closed_) return;
  for (auto& hop : told_) hop.certain = 0; // the wait is over
  tell(communicator_, failed ? told_ : std::vector<WaitNote::Hop>{});
}

std::string Standstill::look(const std::vector<int>& absent) {
  if (absent.empty() || ++looks_ < kLooksBeforeCertain) return {};
  if (own_.empty()) own_ = communicator_.describe_wait(call_site_());
  const uint64_t self = communicator_.global_rank(communicator_.rank());
  if (const auto circle = announced(); !circle.empty()) {
    closed_ = true;
    tell(communicator_, circle, true);
    return lines(circle);
  }

  std::vector<WaitNote::Hop> told;
  for (size_t i = 0; i < absent.size(); ++i) {
    const int rank = absent[(i + looks_) % absent.size()]; // in turn: more than one may lead to a circle
    std::vector<WaitNote::Hop> hops(1);
    hops[0].rank = self;
    hops[0].awaited = communicator_.global_rank(rank);
    hops[0].certain = !several_calling_threads;
    const auto text =
        communicator_.rank_name(communicator_.rank()) + " waits for " + communicator_.rank_name(rank) + own_;
    text.copy(hops[0].text, sizeof hops[0].text - 1);
    if (!communicator_.closed_note_of(rank)) { // that wait is over
      for (const auto& hop : communicator_.note_of(rank)) {
        if (hop.rank == self) break;
        hops.push_back(hop);
      }
    }
    if (told.empty() || hops.size() > 1) told = hops;
    const bool certain = std::all_of(hops.begin(), hops.end(), [](const auto& hop) { return hop.certain != 0; });
    if (hops.size() < 2 || hops.back().awaited != self || !certain) continue;
    const auto circle = lines(hops);
    times_seen_ = circle == seen_ ? times_seen_ + 1 : 1;
    seen_ = circle;
    closed_ = times_seen_ >= kLooksBeforeCertain;
    told = hops;
    break;
  }
  told_ = std::move(told);
  tell(communicator_, told_, closed_);
  return closed_ ? seen_ : std::string();
}

// A circle that another rank found, through this wait of this rank.
std::vector<WaitNote::Hop> Standstill::announced() const {
  const uint64_t self = communicator_.global_rank(communicator_.rank());
  const auto own = own_.substr(0, sizeof WaitNote::Hop::text / 2);
  std::vector<WaitNote::Hop> found;
  for_each_group([&](Communicator& group) {
    for (int rank = 0; rank < group.size() && found.empty(); ++rank) {
      if (!group.closed_note_of(rank)) continue;
      const auto hops = group.note_of(rank);
      const bool here = std::any_of(hops.begin(), hops.end(), [&](const auto& hop) {
        return hop.rank == self && std::string(hop.text).find(own) != std::string::npos;
      });
      if (here) found = hops;
    }
  });
  return found;
}

bool is_calling_thread() { return calling_thread.load(std::memory_order_relaxed) == std::this_thread::get_id(); }

void note_calling_thread() {
  const auto self = std::this_thread::get_id();
  const auto first = calling_thread.load(std::memory_order_relaxed);
  if (first == self) return;
  if (first == std::thread::id()) {
    calling_thread = self;
  } else {
    several_calling_threads = true;
  }
}

} // namespace neuron
