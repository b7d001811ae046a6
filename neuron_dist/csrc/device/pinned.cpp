#include "csrc/device/pinned.h"

#include <cstring>
#include <map>
#include <mutex>

#include <c10/core/CPUAllocator.h>

namespace neuron {

namespace {

std::mutex mutex;
std::map<const char*, size_t>& ranges() {  // leaked: tensors may outlive static destruction
  static auto* made = new std::map<const char*, size_t>;
  return *made;
}

void free_pinned(void* address) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    ranges().erase(static_cast<const char*>(address));
  }
  c10::GetDefaultCPUAllocator()->raw_deleter()(address);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    c10::Allocator* host = c10::GetDefaultCPUAllocator();
    void* address = host->raw_allocate(bytes);
    if (address) {
      std::lock_guard<std::mutex> lock(mutex);
      ranges().emplace(static_cast<const char*>(address), bytes);
    }
    return {address, address, &free_pinned, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* dest, const void* src, size_t count) const override { std::memcpy(dest, src, count); }
};

PinnedAllocator instance;

}  // namespace

c10::Allocator* pinned_allocator() { return &instance; }

bool is_pinned(const void* address) {
  std::lock_guard<std::mutex> lock(mutex);
  auto range = ranges().upper_bound(static_cast<const char*>(address));
  if (range == ranges().begin()) return false;
  --range;
  return static_cast<const char*>(address) < range->first + range->second;
}

}  // namespace neuron
