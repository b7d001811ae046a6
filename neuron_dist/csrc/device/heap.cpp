#include "csrc/device/heap.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <string>

#include "csrc/device/arena.h"

namespace neuron {

namespace {

// The sizes of torch's CUDA allocator, so that memory figures compare.
constexpr size_t kAlignment = 512;
constexpr size_t kSmallLimit = size_t{1} << 20; // requests up to this share small segments
constexpr size_t kSegment = size_t{2} << 20; // granularity of segments, and the size of a small one
constexpr size_t kLargeSegment = size_t{20} << 20; // for requests below kOwnSegment
constexpr size_t kOwnSegment = size_t{10} << 20; // from here on a segment fits its request
constexpr size_t kFragmentShare = 5; // a fifth of what tensors use

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string readable(size_t bytes) {
  const bool large = bytes >= size_t{1} << 30;
  char text[32];
  std::snprintf(
      text, sizeof text, "%.2f %s", static_cast<double>(bytes) / static_cast<double>(large ? 1 << 30 : 1 << 20),
      large ? "GiB" : "MiB");
  return text;
}

size_t segment_size(Pool pool, size_t rounded) {
  if (pool == Pool::kSmall) return kSegment;
  return rounded < kOwnSegment ? kLargeSegment : round_up(rounded, kSegment);
}

bool is_whole_segment(const Block* block) { return !block->previous && !block->next; }

} // namespace

Heap::Heap(int device) : device_(device), limit_(Arena::capacity() / kSegment * kSegment) {
  unreserved_.emplace(Arena::instance().device_base(device), limit_);
}

void* Heap::allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t rounded = bytes > Arena::capacity() ? bytes : round_up(bytes, kAlignment);
  const Pool pool = rounded <= kSmallLimit ? Pool::kSmall : Pool::kLarge;
  const Request request{bytes, rounded, pool, gather_traceback(Stacks::kState)};
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > limit_) out_of_memory(request, "");
  Block* block = take_free(request);
  if (!block) block = take_segment(request);
  split(block, rounded);
  block->in_use = true;
  block->requested = bytes;
  block->traceback = request.traceback;
  in_use_.emplace(block->address, block);
  record("alloc", block->address, block->size, request.traceback);
  count(stats_.allocation, pool, 1);
  count(stats_.active, pool, 1);
  count(stats_.allocated_bytes, pool, static_cast<int64_t>(block->size));
  count(stats_.active_bytes, pool, static_cast<int64_t>(block->size));
  count(stats_.requested_bytes, pool, static_cast<int64_t>(bytes));
  most_used_ = std::max(most_used_, static_cast<size_t>(stats_.allocated_bytes[0].current));
  return block->address;
}

void Heap::free(void* address) {
  const Traceback traceback = gather_traceback(Stacks::kAll);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = in_use_.find(address);
  TORCH_INTERNAL_ASSERT(found != in_use_.end(), "no allocation of neuron:", device_, " starts at ", address);
  Block* block = found->second;
  in_use_.erase(found);
  record("free_requested", block->address, block->size, traceback);
  record("free_completed", block->address, block->size, traceback);
  count(stats_.allocation, block->pool, -1);
  count(stats_.active, block->pool, -1);
  count(stats_.allocated_bytes, block->pool, -static_cast<int64_t>(block->size));
  count(stats_.active_bytes, block->pool, -static_cast<int64_t>(block->size));
  count(stats_.requested_bytes, block->pool, -static_cast<int64_t>(block->requested));
  block->in_use = false;
  block->requested = 0;
  block->traceback = nullptr;
  insert_free(coalesce(block));
}

void Heap::empty_cache() {
  const Traceback traceback = gather_traceback(Stacks::kAll);
  std::lock_guard<std::mutex> lock(mutex_);
  release_free(SIZE_MAX, traceback);
  most_used_ = static_cast<size_t>(stats_.allocated_bytes[0].current);
}

Block* Heap::take_free(const Request& request) {
  Block key{nullptr, request.rounded, request.pool};
  const auto found = free_blocks(request.pool).lower_bound(&key);
  if (found == free_blocks(request.pool).end()) return nullptr;
  Block* block = *found;
  remove_free(block);
  return block;
}

// New memory: a whole segment while fragments are few; else as little as possible, in place of cached memory. If there
// is no room, or the host cannot back it, once more after giving back all that is cached.
Block* Heap::take_segment(const Request& request) {
  const size_t ample = segment_size(request.pool, request.rounded);
  const size_t least = round_up(request.rounded, kSegment);
  const size_t headroom = headroom_for(request);
  if (least > headroom) release_free(least - headroom, request.traceback);
  std::string host_reason;
  for (const bool retry : {false, true}) {
    if (retry) {
      ++stats_.num_alloc_retries;
      release_free(SIZE_MAX, request.traceback);
    }
    try {
      if (ample <= headroom) {
        if (Block* block = commit_segment(request, ample)) return block;
      }
      if (Block* block = grow_segment(request)) return block;
      if (Block* block = commit_segment(request, least)) return block;
    } catch (const c10::OutOfMemoryError& error) {
      host_reason = error.what_without_backtrace();
    }
  }
  out_of_memory(request, host_reason);
}

// What may be reserved still before fragments are more than their share of the most that tensors have used at once.
size_t Heap::headroom_for(const Request& request) {
  const auto allocated = static_cast<size_t>(stats_.allocated_bytes[0].current);
  const size_t most_used = std::max(most_used_, allocated + request.rounded);
  const size_t allowed = most_used + std::max(most_used / kFragmentShare, kLargeSegment);
  const auto reserved = static_cast<size_t>(stats_.reserved_bytes[0].current);
  return allowed > reserved ? allowed - reserved : 0;
}

// Null if the device has no room for it.
Block* Heap::commit_segment(const Request& request, size_t bytes) {
  const auto range = std::find_if(
      unreserved_.begin(), unreserved_.end(), [bytes](const auto& entry) { return entry.second >= bytes; });
  if (range == unreserved_.end() || !fits(bytes)) return nullptr;
  char* const address = range->first;
  commit(range, request.pool, bytes);
  record("segment_alloc", address, bytes, request.traceback);
  count(stats_.segment, request.pool, 1);
  return new Block{address, bytes, request.pool};
}

// A segment that ends in a free block too small for the request, made larger by what lies behind it; else null. What
// the ends of segments leave over would otherwise be lost when the device is nearly full.
Block* Heap::grow_segment(const Request& request) {
  for (Block* block : free_blocks(request.pool)) {
    const auto range = unreserved_.find(block->address + block->size);
    const size_t missing = round_up(request.rounded - block->size, kSegment);
    if (block->next || range == unreserved_.end() || range->second < missing || !fits(missing)) continue;
    commit(range, request.pool, missing);
    record("segment_map", block->address + block->size, missing, request.traceback);
    remove_free(block);
    block->size += missing;
    return block;
  }
  return nullptr;
}

bool Heap::fits(size_t bytes) const { return static_cast<size_t>(stats_.reserved_bytes[0].current) + bytes <= limit_; }

// Takes the first bytes of an unreserved range.
void Heap::commit(std::map<char*, size_t>::iterator range, Pool pool, size_t bytes) {
  const auto [address, available] = *range;
  Arena::instance().commit(address, bytes);
  unreserved_.erase(range);
  if (available > bytes) unreserved_.emplace(address + bytes, available - bytes);
  ++stats_.num_device_alloc;
  count(stats_.reserved_bytes, pool, static_cast<int64_t>(bytes));
}

// Returns the free remainder of a block that is about to be used.
void Heap::split(Block* block, size_t rounded) {
  const size_t rest = block->size - rounded;
  if (rest < (block->pool == Pool::kSmall ? kAlignment : kSmallLimit + 1)) return;
  insert_free(cut(block, rounded));
}

// The rest of a block behind its first bytes, as a block of its own.
Block* Heap::cut(Block* block, size_t bytes) {
  Block* rest = new Block{block->address + bytes, block->size - bytes, block->pool};
  rest->previous = block;
  rest->next = block->next;
  if (block->next) block->next->previous = rest;
  block->next = rest;
  block->size = bytes;
  return rest;
}

Block* Heap::coalesce(Block* block) {
  if (Block* next = block->next; next && !next->in_use) {
    remove_free(next);
    block->size += next->size;
    block->next = next->next;
    if (block->next) block->next->previous = block;
    delete next;
  }
  if (Block* previous = block->previous; previous && !previous->in_use) {
    remove_free(previous);
    previous->size += block->size;
    previous->next = block->next;
    if (previous->next) previous->next->previous = previous;
    delete block;
    return previous;
  }
  return block;
}

void Heap::insert_free(Block* block) {
  free_blocks(block->pool).insert(block);
  if (is_whole_segment(block)) return;
  count(stats_.inactive_split, block->pool, 1);
  count(stats_.inactive_split_bytes, block->pool, static_cast<int64_t>(block->size));
}

void Heap::remove_free(Block* block) {
  free_blocks(block->pool).erase(block);
  if (is_whole_segment(block)) return;
  count(stats_.inactive_split, block->pool, -1);
  count(stats_.inactive_split_bytes, block->pool, -static_cast<int64_t>(block->size));
}

// Gives back whole units of kSegment within free blocks, those of the largest first, until it is `bytes` or all.
void Heap::release_free(size_t bytes, const Traceback& traceback) {
  std::vector<Block*> blocks(free_[0].begin(), free_[0].end());
  blocks.insert(blocks.end(), free_[1].begin(), free_[1].end());
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return BySize()(b, a); });
  size_t released = 0;
  for (Block* block : blocks) {
    if (released >= bytes) return;
    released += release(block, traceback);
  }
}

// What a block has besides whole units stays with the segment on that side; one segment may so become two.
size_t Heap::release(Block* block, const Traceback& traceback) {
  const auto offset = static_cast<size_t>(block->address - Arena::instance().device_base(device_));
  const size_t before = round_up(offset, kSegment) - offset;
  const size_t after = (offset + block->size) % kSegment;
  if (block->size <= before + after) return 0;
  const size_t bytes = block->size - before - after;
  remove_free(block);
  Block* const unit = before ? cut(block, before) : block;
  Block* const rest = after ? cut(unit, bytes) : nullptr;
  count(stats_.segment, unit->pool, (unit->previous ? 1 : 0) + (unit->next ? 1 : 0) - 1);
  if (unit->previous) unit->previous->next = nullptr;
  if (unit->next) unit->next->previous = nullptr;
  if (before) insert_free(block);
  if (rest) insert_free(rest);
  Arena::instance().release(unit->address, bytes);
  record(unit->previous || unit->next ? "segment_unmap" : "segment_free", unit->address, bytes, traceback);
  ++stats_.num_device_free;
  count(stats_.reserved_bytes, unit->pool, -static_cast<int64_t>(bytes));
  insert_unreserved(unit->address, bytes);
  delete unit;
  return bytes;
}

void Heap::insert_unreserved(char* address, size_t bytes) {
  auto range = unreserved_.emplace(address, bytes).first;
  if (const auto next = std::next(range); next != unreserved_.end() && next->first == address + bytes) {
    range->second += next->second;
    unreserved_.erase(next);
  }
  if (range == unreserved_.begin()) return;
  if (const auto before = std::prev(range); before->first + before->second == address) {
    before->second += range->second;
    unreserved_.erase(range);
  }
}

void Heap::out_of_memory(const Request& request, const std::string& host_reason) {
  ++stats_.num_ooms;
  const auto used = static_cast<size_t>(stats_.allocated_bytes[0].current);
  const auto reserved = static_cast<size_t>(stats_.reserved_bytes[0].current);
  record_event(static_cast<c10::DeviceIndex>(device_), "oom", limit_ - reserved, request.bytes, request.traceback);
  const std::string limit =
      limit_ < Arena::capacity() / kSegment * kSegment ? " (limited to " + readable(limit_) + " of it)" : "";
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "neuron:", device_, " out of memory. Tried to allocate ", readable(request.bytes),
      ". The device has ", readable(Arena::capacity()), " of HBM", limit, "; ", readable(used),
      " are in use by tensors and ", readable(reserved - used), " are cached, free but in pieces. ", host_reason);
}

void Heap::record(const char* action, const void* address, size_t size, const Traceback& traceback) const {
  record_event(
      static_cast<c10::DeviceIndex>(device_), action, reinterpret_cast<uint64_t>(address), size, traceback);
}

void Heap::count(c10::CachingDeviceAllocator::StatArray& stat, Pool pool, int64_t amount) {
  for (const size_t entry : {size_t{0}, pool == Pool::kSmall ? size_t{1} : size_t{2}}) {
    if (amount >= 0) {
      stat[entry].increase(static_cast<size_t>(amount));
    } else {
      stat[entry].decrease(static_cast<size_t>(-amount));
    }
  }
}

void Heap::set_memory_fraction(double fraction) {
  TORCH_CHECK(fraction >= 0 && fraction <= 1, "a memory fraction is from 0 to 1, not ", fraction);
  std::lock_guard<std::mutex> lock(mutex_);
  limit_ = static_cast<size_t>(static_cast<double>(Arena::capacity()) * fraction) / kSegment * kSegment;
}

c10::CachingDeviceAllocator::DeviceStats Heap::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

namespace {

template <class Reset>
void for_each_stat(c10::CachingDeviceAllocator::DeviceStats& stats, Reset reset) {
  for (auto* array :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (auto& stat : *array) reset(stat);
  }
}

} // namespace

void Heap::reset_accumulated_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat(stats_, [](auto& stat) { stat.reset_accumulated(); });
  stats_.num_alloc_retries = stats_.num_ooms = stats_.num_device_alloc = stats_.num_device_free = 0;
}

void Heap::reset_peak_stats() {
  std::lock_guard<std::mutex> lock(mutex_);
  for_each_stat(stats_, [](auto& stat) { stat.reset_peak(); });
}

std::vector<Segment> Heap::segments() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::map<char*, const Block*> first; // of every segment
  for (const FreeBlocks& blocks : free_) {
    for (const Block* block : blocks) {
      if (!block->previous) first.emplace(block->address, block);
    }
  }
  for (const auto& [address, block] : in_use_) {
    if (!block->previous) first.emplace(block->address, block);
  }
  std::vector<Segment> segments;
  for (const auto& [address, head] : first) {
    segments.emplace_back();
    for (const Block* block = head; block; block = block->next) segments.back().push_back(*block);
  }
  return segments;
}

std::pair<size_t, size_t> Heap::free_and_total() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {Arena::capacity() - static_cast<size_t>(stats_.reserved_bytes[0].current), Arena::capacity()};
}

} // namespace neuron
