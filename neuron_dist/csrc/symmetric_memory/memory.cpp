#include "csrc/symmetric_memory/memory.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "csrc/c10d/gil.h"
#include "csrc/device/allocator.h"
#include "csrc/device/arena.h"
#include "csrc/fabric/control.h"
#include "csrc/fabric/rendezvous.h"

namespace neuron {

namespace {

constexpr size_t kAlign = 512; // as the heap's blocks
constexpr int kYields = 50; // offers of the core before a waiter sleeps
constexpr SpinPolicy kNoSpin{0, 0};

size_t aligned(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Deadline::Milliseconds timeout_of(const c10d::ProcessGroup& group) {
  const auto devices = group.getDeviceTypes();
  if (devices.empty()) return kBackendDefaultTimeout;
  return const_cast<c10d::ProcessGroup&>(group).getBackend(devices.front().type())->getBackendOptions()->timeout;
}

} // namespace

Allocation::Allocation(c10::DeviceIndex device, size_t bytes, std::optional<std::string> group)
    : device(device),
      bytes(bytes),
      pad_bytes(c10d::symmetric_memory::get_signal_pad_size()),
      group(std::move(group)),
      base(static_cast<char*>(heap(device).allocate(aligned(std::max<size_t>(bytes, 1)) + pad_bytes))) {
  std::memset(base + pad_offset(), 0, pad_bytes);
}

Allocation::~Allocation() { heap(device).free(base); }

size_t Allocation::pad_offset() const { return aligned(std::max<size_t>(bytes, 1)); }

NeuronSymmetricMemory::NeuronSymmetricMemory(
    std::shared_ptr<Allocation> own, size_t offset, const std::string& group_name)
    : own_(std::move(own)), offset_(offset) {
  const WithoutGil released;
  const auto group = c10d::resolve_process_group(group_name);
  timeout_ = timeout_of(*group);
  rank_ = group->getRank();
  const int size = group->getSize();
  const Deadline deadline(timeout_);
  c10d::PrefixStore store("neuron/symmetric_memory", group->getStore());
  Meeting meeting = meet(store, rank_, size, deadline);
  peers_ = std::move(meeting.peers);

  // Where each rank's block lies travels in the control memory that the meeting made, used once.
  const ControlSegment control(meeting.control, size);
  control.inputs(rank_, 0)[0] = {Arena::instance().offset_of(own_->base), own_->bytes};
  control.outputs(rank_, 0)[0] = {offset_, own_->pad_bytes};
  Barrier& arrival = control.group().arrival;
  arrival.arrive(1, static_cast<uint32_t>(size));
  arrival.wait(1, kNoSpin, deadline, [&] {
    for (int rank = 0; rank < size; ++rank) {
      TORCH_CHECK_WITH(
          DistBackendError, !peers_[rank]->dead(), "symmetric memory of group '", group_name, "': rank ", rank,
          " (pid ", peers_[rank]->pid(), ") ", peers_[rank]->describe_death());
    }
    TORCH_CHECK_WITH(
        DistBackendError, !deadline.passed(), "symmetric memory of group '", group_name,
        "': not all ranks came within ", timeout_.count(), " ms");
  });
  for (int rank = 0; rank < size; ++rank) {
    const Range block = control.inputs(rank, 0)[0];
    const Range rest = control.outputs(rank, 0)[0];
    TORCH_CHECK_WITH(
        DistBackendError, block.bytes == own_->bytes && rest.offset == offset_ && rest.bytes == own_->pad_bytes,
        "symmetric memory of group '", group_name, "' must be the same on all ranks: rank ", rank, " has ", block.bytes,
        " bytes at offset ", rest.offset, " and a signal pad of ", rest.bytes, ", rank ", rank_, " has ", own_->bytes,
        " at ", offset_, " and ", own_->pad_bytes);
    char* base = peers_[rank]->map(block.offset, own_->pad_offset() + own_->pad_bytes);
    buffers_.push_back(base);
    pads_.push_back(base + own_->pad_offset());
  }

  if (const auto backends = group->getDeviceTypes(); !backends.empty()) {
    for (const auto rank : group->getBackend(backends.front().type())->getBackendOptions()->global_ranks_in_group) {
      global_ranks_.push_back(static_cast<int>(rank));
    }
  }
  for (int rank = static_cast<int>(global_ranks_.size()); rank < size; ++rank) global_ranks_.push_back(rank);
}

uint32_t* NeuronSymmetricMemory::word(int owner, int sender, int channel) const {
  const int size = static_cast<int>(pads_.size());
  TORCH_CHECK_INDEX(
      owner >= 0 && owner < size && sender >= 0 && sender < size, "symmetric memory has ranks 0 to ", size - 1,
      ", not ", owner == rank_ ? sender : owner);
  const size_t index = static_cast<size_t>(size) * channel + sender;
  TORCH_CHECK_INDEX(
      channel >= 0 && (index + 1) * sizeof(uint32_t) <= own_->pad_bytes, "channel ", channel,
      " lies outside a signal pad of ", own_->pad_bytes, " bytes for ", size,
      " ranks; set_signal_pad_size makes the pads of later allocations larger");
  return static_cast<uint32_t*>(pads_[owner]) + index;
}

void NeuronSymmetricMemory::turn(
    uint32_t* word, uint32_t from, uint32_t to, int peer, const char* what, size_t timeout_ms) const {
  const WithoutGil released;
  const Deadline deadline(timeout_ms ? Deadline::Milliseconds(timeout_ms) : timeout_);
  const std::atomic_ref<uint32_t> value(*word);
  for (int attempt = 0;; ++attempt) {
    uint32_t seen = from;
    if (value.compare_exchange_strong(seen, to, std::memory_order_acq_rel)) break;
    if (attempt < kYields) {
      sched_yield();
      continue;
    }
    const auto nap_ms = std::min(deadline.left(), Deadline::Milliseconds(100)).count();
    const timespec nap{0, nap_ms * 1'000'000};
    if (syscall(SYS_futex, word, FUTEX_WAIT, seen, &nap, nullptr, 0) == 0 || errno == EAGAIN) continue;
    TORCH_CHECK_WITH(
        DistBackendError, !peers_[peer]->dead(), "symmetric memory: rank ", rank_, " waited ", what, " rank ", peer,
        ", whose process ", peers_[peer]->pid(), " ", peers_[peer]->describe_death());
    TORCH_CHECK_WITH(
        DistBackendError, !deadline.passed(), "symmetric memory: rank ", rank_, " timed out after ",
        deadline.timeout().count(), " ms waiting ", what, " rank ", peer);
  }
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void NeuronSymmetricMemory::put_signal(int dst_rank, int channel, size_t timeout_ms) {
  turn(word(dst_rank, rank_, channel), 0, 1, dst_rank, "until an earlier signal was taken by", timeout_ms);
}

void NeuronSymmetricMemory::wait_signal(int src_rank, int channel, size_t timeout_ms) {
  turn(word(rank_, src_rank, channel), 1, 0, src_rank, "for a signal of", timeout_ms);
}

void NeuronSymmetricMemory::barrier(int channel, size_t timeout_ms) {
  for (int peer = 0; peer < get_world_size(); ++peer) {
    if (peer != rank_) put_signal(peer, channel, timeout_ms);
  }
  for (int peer = 0; peer < get_world_size(); ++peer) {
    if (peer != rank_) wait_signal(peer, channel, timeout_ms);
  }
}

} // namespace neuron
