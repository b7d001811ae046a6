#include "csrc/device/allocator.h"

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>

#include <c10/core/CPUAllocator.h>

#include "csrc/device/arena.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

constexpr size_t kMaxDevices = std::numeric_limits<c10::DeviceIndex>::max() + size_t{1};
std::array<std::atomic<Heap*>, kMaxDevices> heaps; // never destroyed: tensors may outlive static destruction
std::mutex making_heap;

struct NeuronAllocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    const c10::DeviceIndex device = current_device();
    return allocate_on(device, bytes, neuron_device(device));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_memory; }
  void copy_data(void* dest, const void* src, size_t count) const override { std::memcpy(dest, src, count); }

  bool initialized() override { return Arena::exists(); }
  void emptyCache(c10::MempoolId_t) override {
    if (in_bad_fork()) return; // a hole punched here would be a hole in the parent's memory
    for (auto& heap : heaps) {
      if (Heap* made = heap.load(std::memory_order_acquire)) made->empty_cache();
    }
  }
  // Kernels have run when the call that launched them returns, and work on a communicator's thread holds its tensors,
  // so no stream can still be using memory that was freed.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return heap(device).stats();
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { heap(device).reset_accumulated_stats(); }
  void resetPeakStats(c10::DeviceIndex device) override { heap(device).reset_peak_stats(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override { return heap(device).free_and_total(); }
};

NeuronAllocator instance;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &instance);

} // namespace

c10::DeviceAllocator* allocator() { return &instance; }

bool heap_exists(c10::DeviceIndex device) noexcept {
  return device >= 0 && heaps[static_cast<size_t>(device)].load(std::memory_order_acquire);
}

Heap& heap(c10::DeviceIndex device) {
  if (heap_exists(device)) return *heaps[static_cast<size_t>(device)].load(std::memory_order_acquire);
  check_device(device);
  std::lock_guard<std::mutex> lock(making_heap);
  auto& slot = heaps[static_cast<size_t>(device)];
  if (!slot.load(std::memory_order_relaxed)) slot.store(new Heap(device), std::memory_order_release);
  return *slot.load(std::memory_order_relaxed);
}

c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes, c10::Device claimed) {
  check_not_forked();
  void* address = heap(device).allocate(bytes);
  return {address, address, &delete_memory, claimed};
}

void delete_memory(void* address) {
  if (!address) return;
  if (Arena::exists() && Arena::instance().contains(address)) {
    heap(static_cast<c10::DeviceIndex>(Arena::instance().device_of(address))).free(address);
  } else {
    c10::GetDefaultCPUAllocator()->raw_deleter()(address);
  }
}

} // namespace neuron
