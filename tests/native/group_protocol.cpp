// The group protocol on threads, for ThreadSanitizer: payloads of call n are read without a second barrier, and sends
// hand their message over through its state alone. Prints "ok"; exits with 1 on a wrong value.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "csrc/fabric/control.h"

using namespace neuron;

namespace {

constexpr int kRanks = 4;
constexpr int kCalls = 3000;
constexpr int kValues = 64;

struct Shared {
  GroupState group;
  int payload[kRanks][kCallsInFlight][kValues];
  int direct[kRanks][kValues];
  Mailbox mailbox[kRanks]; // of rank r, written by its left neighbour
  Signal bell[kRanks];
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "wrong: %s\n", what);
  std::_Exit(1);
}

void never() { fail("a wait took longer than its slice, on a run that cannot hang"); }

void run(Shared& shared, int rank) {
  const Deadline deadline(std::chrono::seconds(60));
  const SpinPolicy spin{100, 10};
  uint32_t departures = 0;
  auto patience = [&] {
    if (deadline.passed()) never();
  };
  for (uint32_t call = 1; call <= kCalls; ++call) {
    // An inlined call: one barrier.
    for (int i = 0; i < kValues; ++i) shared.payload[rank][call % kCallsInFlight][i] = rank + static_cast<int>(call);
    const bool is_direct = call % 3 == 0;
    if (is_direct) {
      for (int i = 0; i < kValues; ++i) shared.direct[rank][i] = rank * static_cast<int>(call);
    }
    shared.group.arrival.arrive(call, kRanks);
    shared.group.arrival.wait(call, spin, deadline, patience);
    for (int other = 0; other < kRanks; ++other) {
      for (int value : shared.payload[other][call % kCallsInFlight]) {
        if (value != other + static_cast<int>(call)) fail("payload");
      }
    }
    if (!is_direct) continue;
    // A direct call: everyone reads everyone's memory, then a second barrier.
    for (int other = 0; other < kRanks; ++other) {
      for (int value : shared.direct[other]) {
        if (value != other * static_cast<int>(call)) fail("direct read");
      }
    }
    shared.group.departure.arrive(++departures, kRanks);
    shared.group.departure.wait(departures, spin, deadline, patience);

    // A message to the right, one from the left.
    const int right = (rank + 1) % kRanks;
    Message& out = shared.mailbox[right].messages[call % kMessagesPerMailbox];
    if (out.state.load(std::memory_order_acquire) != Message::free) fail("message not free");
    std::memcpy(out.payload, &call, sizeof call);
    out.state.store(Message::sent, std::memory_order_release);
    shared.bell[right].increment();
    Message& in = shared.mailbox[rank].messages[call % kMessagesPerMailbox];
    while (true) {
      const uint32_t heard = shared.bell[rank].load();
      uint32_t state = Message::sent;
      if (in.state.compare_exchange_strong(state, Message::taking)) break;
      shared.bell[rank].wait(spin, deadline, [heard](uint32_t value) { return value != heard; }, patience);
    }
    uint32_t received;
    std::memcpy(&received, in.payload, sizeof received);
    if (received != call) fail("message");
    in.state.store(Message::free, std::memory_order_release);
    // The next use of this slot is two barriers away.
  }
}

} // namespace

int main() {
  auto shared = std::make_unique<Shared>();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back([&, rank] { run(*shared, rank); });
  for (auto& thread : threads) thread.join();
  std::puts("ok");
}
