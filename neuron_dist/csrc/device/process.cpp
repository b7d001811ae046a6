#include "csrc/device/process.h"

#include <atomic>

#include <pthread.h>
#include <sys/mman.h>

#include <c10/util/Exception.h>

#include "csrc/device/arena.h"

namespace neuron {

namespace {

std::atomic<c10::DeviceIndex> initial_device{0};
thread_local c10::DeviceIndex thread_device = -1; // -1: not chosen yet

bool forked = false; // written only by the single thread of a fresh child

void on_fork_in_child() {
  if (!Arena::exists()) return;
  forked = true;
  mprotect(Arena::instance().device_base(0), Arena::capacity() * static_cast<size_t>(Arena::device_count()), PROT_READ);
}

const int fork_handler = pthread_atfork(nullptr, nullptr, on_fork_in_child);

} // namespace

void set_initial_device(int device) { initial_device = static_cast<c10::DeviceIndex>(device); }

c10::DeviceIndex current_device() noexcept {
  if (thread_device < 0) thread_device = initial_device.load(std::memory_order_relaxed);
  return thread_device;
}

c10::DeviceIndex exchange_device(c10::DeviceIndex device) noexcept {
  const c10::DeviceIndex previous = current_device();
  thread_device = device;
  return previous;
}

void check_device(int64_t device) {
  TORCH_CHECK(
      device >= 0 && device < Arena::device_count(), "neuron:", device, " does not exist: this process sees ",
      Arena::device_count(), " devices, neuron:0 to neuron:", Arena::device_count() - 1);
}

bool in_bad_fork() noexcept { return forked; }

void check_not_forked() {
  TORCH_CHECK(
      !forked,
      "Cannot re-initialize neuron in forked subprocess. To use neuron with multiprocessing, you must use the 'spawn' "
      "start method");
}

} // namespace neuron
