#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/flat_hash_map.h>

#include "csrc/device/history.h"

namespace neuron {

// Which segments a block lives in, by the size of the request.
enum class Pool { kSmall, kLarge };

// A run of bytes of a segment, in use or free. Neighbours in address order are linked, so that freed ones coalesce.
struct Block {
  char* address;
  size_t size;
  Pool pool;
  size_t requested = 0;
  bool in_use = false;
  Block* previous = nullptr;
  Block* next = nullptr;
  Traceback traceback = nullptr; // of who allocated it
};

using Segment = std::vector<Block>; // in address order

// The HBM of one device. Memory is committed from the arena in segments (multiples of 2 MiB) and cut into blocks; freed
// blocks stay with their segment for reuse until empty_cache, or until fragments are more than a fifth of the most that
// tensors have used at once: then new segments take the place of free blocks. Requests up to 1 MiB have segments of
// their own, so that small, long-lived tensors do not pin large ones. Thread safe.
class Heap {
 public:
  explicit Heap(int device);

  // At least `bytes` at an address that is a multiple of 512. Throws c10::OutOfMemoryError.
  void* allocate(size_t bytes);
  void free(void* address);
  void empty_cache();

  // At most this share of the capacity may be reserved.
  void set_memory_fraction(double fraction);
  c10::CachingDeviceAllocator::DeviceStats stats() const;
  void reset_accumulated_stats();
  void reset_peak_stats();
  std::pair<size_t, size_t> free_and_total() const; // bytes
  std::vector<Segment> segments() const; // in address order

 private:
  struct Request {
    size_t bytes;
    size_t rounded;
    Pool pool;
    Traceback traceback;
  };
  struct BySize {
    bool operator()(const Block* a, const Block* b) const {
      return a->size != b->size ? a->size < b->size : a->address < b->address;
    }
  };
  using FreeBlocks = std::set<Block*, BySize>;

  Block* take_free(const Request& request);
  Block* take_segment(const Request& request);
  size_t headroom_for(const Request& request);
  Block* commit_segment(const Request& request, size_t bytes);
  Block* grow_segment(const Request& request);
  bool fits(size_t bytes) const;
  void commit(std::map<char*, size_t>::iterator range, Pool pool, size_t bytes);
  void split(Block* block, size_t rounded);
  Block* coalesce(Block* block);
  void insert_free(Block* block);
  void remove_free(Block* block);
  Block* cut(Block* block, size_t bytes);
  void release_free(size_t bytes, const Traceback& traceback);
  size_t release(Block* block, const Traceback& traceback);
  void insert_unreserved(char* address, size_t bytes);
  [[noreturn]] void out_of_memory(const Request& request, const std::string& host_reason);
  void record(const char* action, const void* address, size_t size, const Traceback& traceback) const;

  void count(c10::CachingDeviceAllocator::StatArray& stat, Pool pool, int64_t amount);
  FreeBlocks& free_blocks(Pool pool) { return free_[pool == Pool::kLarge]; }

  const int device_;
  size_t limit_; // bytes that may be reserved
  mutable std::mutex mutex_;
  FreeBlocks free_[2];
  ska::flat_hash_map<void*, Block*> in_use_;
  size_t most_used_ = 0; // by tensors at once, since the cache was emptied
  std::map<char*, size_t> unreserved_; // address ranges of the device without a segment
  c10::CachingDeviceAllocator::DeviceStats stats_;
};

} // namespace neuron
