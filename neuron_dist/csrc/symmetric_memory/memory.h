#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>

#include "csrc/fabric/deadline.h"
#include "csrc/fabric/peer.h"

namespace neuron {

// A block of one device's HBM: the buffer, then its signal pad, zero-filled. Freed with the last reference.
class Allocation {
 public:
  Allocation(c10::DeviceIndex device, size_t bytes, std::optional<std::string> group);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  bool contains(const void* address) const { return address >= base && address < base + pad_offset(); }
  size_t pad_offset() const;

  const c10::DeviceIndex device;
  const size_t bytes; // of the buffer
  const size_t pad_bytes;
  const std::optional<std::string> group; // to rendezvous with where a call names none
  char* const base;
};

// The allocations that the ranks of a group made for one another, mapped here. Signals are words of the pads:
// world_size words per channel, one for each sender, 0 when free. They block the calling thread, as all of the device
// does.
class NeuronSymmetricMemory final : public c10d::symmetric_memory::SymmetricMemory {
 public:
  // Collective over the group. Throws DistBackendError unless all ranks come with as many bytes before its timeout.
  NeuronSymmetricMemory(std::shared_ptr<Allocation> own, size_t offset, const std::string& group);

  std::vector<void*> get_buffer_ptrs() override { return buffers_; }
  std::vector<void*> get_signal_pad_ptrs() override { return pads_; }
  void** get_buffer_ptrs_dev() override { return buffers_.data(); } // device memory is host memory
  void** get_signal_pad_ptrs_dev() override { return pads_.data(); }
  size_t get_buffer_size() override { return own_->bytes; }
  size_t get_offset() override { return offset_; }

  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }

  // A timeout of 0 ms stands for the group's. Throw DistBackendError when it passes or a peer dies.
  void barrier(int channel, size_t timeout_ms) override;
  void put_signal(int dst_rank, int channel, size_t timeout_ms) override;
  void wait_signal(int src_rank, int channel, size_t timeout_ms) override;

  int get_rank() override { return rank_; }
  int get_world_size() override { return static_cast<int>(buffers_.size()); }
  c10::Device get_device() override { return {c10::DeviceType::PrivateUse1, own_->device}; }
  const std::vector<int>& get_rank_to_global_rank() override { return global_ranks_; }
  int* get_rank_to_global_rank_dev() override { return global_ranks_.data(); }
  bool world_within_direct_access() override { return true; }

 private:
  uint32_t* word(int owner, int sender, int channel) const;
  // Waits until the word is `from`, which makes it `to`.
  void turn(uint32_t* word, uint32_t from, uint32_t to, int peer, const char* what, size_t timeout_ms) const;

  std::shared_ptr<Allocation> own_;
  size_t offset_; // of the tensor that was given, within the buffer
  Deadline::Milliseconds timeout_;
  int rank_;
  std::vector<int> global_ranks_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<void*> buffers_; // by rank
  std::vector<void*> pads_;
};

} // namespace neuron
