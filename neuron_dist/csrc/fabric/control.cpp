#include "csrc/fabric/control.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include <c10/util/Exception.h>

namespace neuron {

namespace {

constexpr size_t kPage = 4096;

constexpr size_t align(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// One call's area: descriptor, ranges, payload.
size_t ranges_bytes(int ranks) { return align(2 * sizeof(Range) * ranks, 64); }
size_t call_bytes(int ranks) { return align(sizeof(Descriptor), 64) + ranges_bytes(ranks) + kInlineBytes; }

// One rank's block: its state, its calls, then a mailbox per sender.
constexpr size_t kStateBytes = align(sizeof(RankState), 64);
size_t mailboxes_at(int ranks) { return align(kStateBytes + kCallsInFlight * call_bytes(ranks), kPage); }
size_t block_bytes(int ranks) { return align(mailboxes_at(ranks) + sizeof(Mailbox) * ranks, kPage); }

constexpr size_t kGroupBytes = align(sizeof(GroupState), kPage);

} // namespace

const char* name(Op op) {
  constexpr const char* kNames[] = {"all_reduce", "reduce",     "reduce_scatter", "all_gather", "gather", "broadcast",
                                    "scatter",    "all_to_all", "barrier",        "send_recv",  "invalid"};
  return kNames[static_cast<int>(op)];
}

const char* name(Reduction reduction) {
  constexpr const char* kNames[] = {"NONE", "SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"};
  return kNames[static_cast<int>(reduction)];
}

size_t ControlSegment::bytes(int ranks) { return kGroupBytes + block_bytes(ranks) * static_cast<size_t>(ranks); }

Fd ControlSegment::create(int ranks) {
  Fd file(memfd_create("neuron-group", MFD_CLOEXEC));
  TORCH_CHECK(
      file && ftruncate(file.get(), static_cast<off_t>(bytes(ranks))) == 0,
      "cannot create the shared memory of a group of ", ranks, " ranks: ", std::strerror(errno));
  return file;
}

ControlSegment::ControlSegment(const Fd& file, int ranks) : ranks_(ranks), bytes_(bytes(ranks)) {
  void* base = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  TORCH_CHECK(base != MAP_FAILED, "cannot map the shared memory of a group: ", std::strerror(errno));
  base_ = static_cast<char*>(base); // zero-filled, which is the initial state of everything in it
}

ControlSegment::~ControlSegment() { munmap(base_, bytes_); }

char* ControlSegment::block(int rank) const { return base_ + kGroupBytes + block_bytes(ranks_) * rank; }

char* ControlSegment::call_area(int rank, uint32_t call) const {
  return block(rank) + kStateBytes + call_bytes(ranks_) * (call % kCallsInFlight);
}

Descriptor& ControlSegment::descriptor(int rank, uint32_t call) const {
  return *reinterpret_cast<Descriptor*>(call_area(rank, call));
}

Range* ControlSegment::inputs(int rank, uint32_t call) const {
  return reinterpret_cast<Range*>(call_area(rank, call) + align(sizeof(Descriptor), 64));
}

Range* ControlSegment::outputs(int rank, uint32_t call) const { return inputs(rank, call) + ranks_; }

char* ControlSegment::payload(int rank, uint32_t call) const {
  return call_area(rank, call) + align(sizeof(Descriptor), 64) + ranges_bytes(ranks_);
}

Mailbox& ControlSegment::mailbox(int receiver, int sender) const {
  return reinterpret_cast<Mailbox*>(block(receiver) + mailboxes_at(ranks_))[sender];
}

} // namespace neuron
