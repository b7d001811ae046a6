#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "csrc/device/heap.h"

namespace neuron {

// torch's allocator of neuron memory: the current device's heap. Devices' heaps are made when first used.
c10::DeviceAllocator* allocator();
Heap& heap(c10::DeviceIndex device);
bool heap_exists(c10::DeviceIndex device) noexcept;

// Arena memory of a device, as a DataPtr that claims to be of `claimed`: the operator fallback hands such memory to CPU
// kernels.
c10::DataPtr allocate_on(c10::DeviceIndex device, size_t bytes, c10::Device claimed);

// The one deleter of every DataPtr that this library makes or wraps: tells arena and host memory apart by address.
void delete_memory(void* address);

} // namespace neuron
