#include "csrc/device/landing.h"

#include <cstring>

#include <c10/core/CPUAllocator.h>

#include "csrc/device/allocator.h"

namespace neuron {

namespace {

thread_local c10::DeviceIndex landing_device = -1;

// Stands in for torch's CPU allocator in the whole process. Its deleter must be the same for both kinds of memory
// (Allocator::raw_deleter), so host memory has its deleter exchanged.
struct DelegatingCpuAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (C10_UNLIKELY(landing_device >= 0)) return allocate_on(landing_device, bytes, c10::kCPU);
    c10::Allocator* host = c10::GetDefaultCPUAllocator();
    c10::DataPtr data = host->allocate(bytes);
    const bool exchanged = data.compare_exchange_deleter(host->raw_deleter(), &delete_memory);
    TORCH_INTERNAL_ASSERT(exchanged);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_memory; }
  void copy_data(void* dest, const void* src, size_t count) const override { std::memcpy(dest, src, count); }
};

DelegatingCpuAllocator instance;
const bool installed = (c10::SetCPUAllocator(&instance, /*priority=*/1), true);

} // namespace

Landing::Landing(c10::DeviceIndex device) noexcept : previous_(landing_device) { landing_device = device; }

Landing::~Landing() { landing_device = previous_; }

} // namespace neuron
