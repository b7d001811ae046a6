#pragma once

#include <cstddef>
#include <cstdint>

namespace neuron {

// The HBM of all simulated cores of this process: one sparse memfd, mapped shared, so that the processes of a group
// can map each other's device memory. Device d owns the bytes [d * capacity, (d + 1) * capacity) of the file.
//
// A memfd, not a file in /dev/shm: no size limit of a container's mount, and nothing is left behind after kill -9.
class Arena {
 public:
  // Sizes are fixed before first use; a later call with other values throws.
  static void configure(int device_count, size_t capacity);
  static int device_count() noexcept;
  static size_t capacity() noexcept; // bytes per device

  // Created at the first call. Throws c10::Error if the kernel refuses the file or the mapping.
  static Arena& instance();
  // Whether instance() has run; lets cheap checks avoid creating an arena.
  static bool exists() noexcept;

  int fd() const noexcept { return fd_; }
  char* device_base(int device) const noexcept { return base_ + static_cast<size_t>(device) * capacity(); }
  bool contains(const void* address) const noexcept;
  // Of an address that the arena contains:
  int device_of(const void* address) const noexcept;
  uint64_t offset_of(const void* address) const noexcept; // in the file

  // Backs a page-aligned range with memory now: without this, host memory running out is a SIGBUS at first touch.
  // Throws c10::OutOfMemoryError if the host cannot spare it.
  void commit(void* address, size_t bytes) const;
  // Gives a committed range back to the host. Its contents become zero.
  void release(void* address, size_t bytes) const;

 private:
  Arena();

  int fd_;
  char* base_;
};

} // namespace neuron
