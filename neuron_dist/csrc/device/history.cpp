#include "csrc/device/history.h"

#include <atomic>
#include <chrono>
#include <mutex>

#include <torch/csrc/profiler/combined_traceback.h>

namespace neuron {

namespace {

// Read by every allocation, so outside the mutex.
std::atomic<bool> events_recorded{false};
std::atomic<Stacks> stacks_recorded{Stacks::kNone};
std::atomic<bool> cpp_frames_recorded{false};

std::mutex mutex;
size_t max_events = SIZE_MAX;

std::vector<std::deque<MemoryEvent>>& events() { // leaked: tensors may outlive static destruction
  static auto* made = new std::vector<std::deque<MemoryEvent>>;
  return *made;
}

} // namespace

void set_history(HistorySettings settings, bool clear) {
  std::lock_guard<std::mutex> lock(mutex);
  events_recorded = settings.events;
  stacks_recorded = settings.stacks;
  cpp_frames_recorded = settings.cpp_frames;
  max_events = settings.max_events;
  if (clear) events().clear();
}

Traceback gather_traceback(Stacks level) {
  if (stacks_recorded.load(std::memory_order_relaxed) < level) return nullptr;
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/cpp_frames_recorded);
}

void record_event(c10::DeviceIndex device, const char* action, uint64_t address, size_t size, Traceback traceback) {
  if (!events_recorded.load(std::memory_order_relaxed)) return;
  if (stacks_recorded < Stacks::kAlloc) traceback = nullptr;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::lock_guard<std::mutex> lock(mutex);
  if (events().size() <= static_cast<size_t>(device)) events().resize(static_cast<size_t>(device) + 1);
  auto& trace = events()[static_cast<size_t>(device)];
  while (!trace.empty() && trace.size() >= max_events) trace.pop_front();
  if (max_events == 0) return;
  trace.push_back(
      {action, address, size, std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
       std::move(traceback)});
}

std::vector<std::deque<MemoryEvent>> recorded_events() {
  std::lock_guard<std::mutex> lock(mutex);
  return events();
}

} // namespace neuron
