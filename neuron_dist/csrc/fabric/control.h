#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/fd.h"
#include "csrc/fabric/signal.h"
#include "csrc/fabric/standstill.h"

namespace neuron {

// Layout of the memory that the ranks of one group share to agree on what to do. Everything here is plain data or
// atomics; each rank writes its own block and its own side of a mailbox only.

// A range of a rank's HBM, by its offset in that rank's arena.
struct Range {
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What a rank says of its call: all that must agree, then how its buffers are cut.
struct Descriptor {
  static constexpr uint64_t kUneven = ~uint64_t{0};

  Op op;
  Reduction reduction;
  int8_t dtype;
  bool inlined; // the input lies in the rank's payload area
  int32_t root;
  uint64_t segment_bytes; // of every input and output segment, or kUneven
  uint32_t input_count;
  uint32_t output_count;
  double ready; // simulated seconds: when this rank can start
  double seconds; // what the collective costs, as this rank sees it
  uint64_t faults; // of the fabric, that it knows of
  uint64_t bytes; // of the collective, as nccl-tests counts them
  int64_t arrived_ns; // on this host's steady clock
  char note[400]; // why the call is invalid
};

// Largest input that rides in the control block, where all ranks read it after a single synchronisation. Above it the
// copy and everyone reading everything cost more than the second synchronisation (2 to 8 ranks on 2 cores).
constexpr uint64_t kInlineBytes = 16 << 10;

// A call's descriptor stays readable while the next call is under way, and no longer: a rank can start call n + 2
// only after every rank has arrived at n + 1, which each does after reading n.
constexpr uint32_t kCallsInFlight = 2;

// What send leaves for recv. `state` says whose turn it is.
struct Message {
  enum State : uint32_t { free, sent, taking, received, refused };
  static constexpr uint64_t kEagerBytes = 4096 - 64;

  std::atomic<uint32_t> state;
  int32_t tag;
  uint64_t number; // counts the sender's messages to this receiver; keeps their order
  uint64_t bytes;
  uint64_t offset; // in the sender's arena, unless the message is small enough for `payload`
  int8_t dtype;
  double ready; // simulated seconds: when the sender could start
  double end; // of a large message, told by the receiver
  alignas(64) char payload[kEagerBytes];
};
constexpr int kMessagesPerMailbox = 8;

struct Mailbox {
  Message messages[kMessagesPerMailbox];
};

// A rank's bell rings when a mailbox that it reads or writes has changed.
struct RankState {
  Signal bell;
  std::atomic<uint32_t> arrived; // at which call
  std::atomic<uint32_t> departed; // from which call
  std::atomic<uint32_t> closed; // it destroyed the group
  std::atomic<uint32_t> told; // the call whose line in the program `call_site` names; written when calls do not match
  char call_site[240];
  WaitNote waits; // while its program is held up in a collective of this group or another
};

struct GroupState {
  Barrier arrival;
  Barrier departure;
  std::atomic<uint32_t> failed; // 0, 1 while the text is written, 2 when it can be read
  char failure[6000];
};

// The mapped segment. Sparse: only what a group uses takes memory.
class ControlSegment {
 public:
  static size_t bytes(int ranks);
  static Fd create(int ranks);

  ControlSegment(const Fd& file, int ranks);
  ~ControlSegment();
  ControlSegment(const ControlSegment&) = delete;
  ControlSegment& operator=(const ControlSegment&) = delete;

  GroupState& group() const { return *reinterpret_cast<GroupState*>(base_); }
  RankState& rank(int rank) const { return *reinterpret_cast<RankState*>(block(rank)); }
  Descriptor& descriptor(int rank, uint32_t call) const;
  Range* inputs(int rank, uint32_t call) const; // one per rank of the group
  Range* outputs(int rank, uint32_t call) const;
  char* payload(int rank, uint32_t call) const; // kInlineBytes
  Mailbox& mailbox(int receiver, int sender) const;

 private:
  char* block(int rank) const;
  char* call_area(int rank, uint32_t call) const;

  int ranks_;
  size_t bytes_;
  char* base_;
};

} // namespace neuron
