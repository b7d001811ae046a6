#pragma once

#include <c10/core/Device.h>

namespace neuron {

// The device that this process's threads start on: the launcher's local rank where that is a visible device, else 0.
void set_initial_device(int device);

// The calling thread's current device.
c10::DeviceIndex current_device() noexcept;
c10::DeviceIndex exchange_device(c10::DeviceIndex device) noexcept;

inline c10::Device neuron_device(c10::DeviceIndex index) { return {c10::DeviceType::PrivateUse1, index}; }

// Throws c10::Error unless 0 <= device < device count.
void check_device(int64_t device);

// Throws in a child forked after the devices came into use: the arena is mapped shared, so the child would write into
// its parent's memory. Such a child also sees the arena read-only.
void check_not_forked();
bool in_bad_fork() noexcept;

} // namespace neuron
