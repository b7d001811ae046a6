#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <c10/core/Device.h>

namespace torch {
struct CapturedTraceback;
}

namespace neuron {

// Who asked for memory: null where that is not recorded.
using Traceback = std::shared_ptr<torch::CapturedTraceback>;

// What to record of the allocators' doings, by CUDA's names: torch.cuda.memory._record_memory_history.
enum class Stacks { kNone, kState, kAlloc, kAll }; // for: nothing, memory in use, also allocations, also releases

struct HistorySettings {
  bool events = false;
  Stacks stacks = Stacks::kNone;
  bool cpp_frames = false;
  size_t max_events = SIZE_MAX; // of each device; older ones are dropped
};

struct MemoryEvent {
  const char* action; // as torch's memory viewer reads it
  uint64_t address; // of "oom": the bytes that are free
  size_t size;
  int64_t microseconds; // of the host's clock, since the epoch
  Traceback traceback;
};

void set_history(HistorySettings settings, bool clear);

// Where the calling thread is, if stacks are recorded at this level. May take Python's lock: to be called with no other
// lock held.
Traceback gather_traceback(Stacks level);

// Appends an event, if events are recorded; its traceback only if stacks of allocations are.
void record_event(c10::DeviceIndex device, const char* action, uint64_t address, size_t size, Traceback traceback);

std::vector<std::deque<MemoryEvent>> recorded_events(); // by device

} // namespace neuron
