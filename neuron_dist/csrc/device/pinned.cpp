#include "csrc/device/pinned.h"

#include <cstring>
#include <map>
#include <mutex>

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>

namespace neuron {

namespace {

std::mutex mutex;
std::map<const char*, size_t>& ranges() { // leaked: tensors may outlive static destruction
  static auto* made = new std::map<const char*, size_t>;
  return *made;
}

at::HostStats stats; // guarded by mutex

void free_pinned(void* address) {
  if (!address) return;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const auto range = ranges().find(static_cast<const char*>(address));
    stats.active_requests.decrease(1);
    stats.active_bytes.decrease(range->second);
    stats.allocations.decrease(1);
    stats.allocated_bytes.decrease(range->second);
    ranges().erase(range);
  }
  c10::GetDefaultCPUAllocator()->raw_deleter()(address);
}

// Nothing is cached: it is plain host memory, and the host's allocator does that.
struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* address = c10::GetDefaultCPUAllocator()->raw_allocate(bytes);
    if (address) {
      std::lock_guard<std::mutex> lock(mutex);
      ranges().emplace(static_cast<const char*>(address), bytes);
      stats.active_requests.increase(1);
      stats.active_bytes.increase(bytes);
      stats.allocations.increase(1);
      stats.allocated_bytes.increase(bytes);
    }
    return {address, address, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, size_t count) const override { std::memcpy(dest, src, count); }

  // A copy has been made when the call that asked for it returns.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::lock_guard<std::mutex> lock(mutex);
    return stats;
  }
  void reset_accumulated_stats() override {
    for_each_stat([](auto& stat) { stat.reset_accumulated(); });
  }
  void reset_peak_stats() override {
    for_each_stat([](auto& stat) { stat.reset_peak(); });
  }

 private:
  template <class Reset>
  void for_each_stat(Reset reset) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto* stat : {&stats.active_requests, &stats.active_bytes, &stats.allocations, &stats.allocated_bytes}) {
      reset(*stat);
    }
  }
};

PinnedAllocator instance;
REGISTER_HOST_ALLOCATOR(c10::DeviceType::PrivateUse1, &instance);

} // namespace

c10::Allocator* pinned_allocator() { return &instance; }

bool is_pinned(const void* address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto range = ranges().upper_bound(static_cast<const char*>(address));
  if (range == ranges().begin()) return false;
  --range;
  return static_cast<const char*>(address) < range->first + range->second;
}

} // namespace neuron
