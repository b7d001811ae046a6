#include "csrc/device/arena.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <c10/util/Exception.h>

namespace neuron {

namespace {

// Host memory that must stay free after a commit; below it the kernel starts to kill processes instead of refusing.
constexpr size_t kHostReserve = size_t{128} << 20;

struct Sizes {
  int device_count = 64;
  size_t capacity = size_t{24} << 30;
};

Sizes sizes;
std::atomic<bool> created{false};

// Bytes the host can still give, from /proc/meminfo; SIZE_MAX where that cannot be read.
size_t host_available() {
  size_t kib = SIZE_MAX >> 10;
  if (FILE* file = std::fopen("/proc/meminfo", "re")) {
    char line[128];
    while (std::fgets(line, sizeof line, file) && std::sscanf(line, "MemAvailable: %zu", &kib) != 1) {
    }
    std::fclose(file);
  }
  return kib << 10;
}

size_t read_cgroup(const char* name) {
  char path[96];
  std::snprintf(path, sizeof path, "/sys/fs/cgroup/%s", name);
  size_t value = SIZE_MAX;
  if (FILE* file = std::fopen(path, "re")) {
    if (std::fscanf(file, "%zu", &value) != 1) value = SIZE_MAX; // "max"
    std::fclose(file);
  }
  return value;
}

// What a container's memory limit leaves; SIZE_MAX without a limit.
size_t cgroup_available() {
  const size_t limit = read_cgroup("memory.max");
  const size_t used = limit == SIZE_MAX ? 0 : read_cgroup("memory.current");
  return limit == SIZE_MAX ? SIZE_MAX : limit - std::min(limit, used);
}

} // namespace

void Arena::configure(int device_count, size_t capacity) {
  TORCH_CHECK(
      !exists() || (device_count == sizes.device_count && capacity == sizes.capacity),
      "the neuron devices are in use already; their number and HBM size can no longer change");
  sizes = {device_count, capacity};
}

int Arena::device_count() noexcept { return sizes.device_count; }

size_t Arena::capacity() noexcept { return sizes.capacity; }

bool Arena::exists() noexcept { return created.load(std::memory_order_acquire); }

Arena& Arena::instance() {
  static Arena* arena = new Arena(); // never destroyed: tensors may outlive static destruction
  return *arena;
}

Arena::Arena() {
  const size_t bytes = sizes.capacity * static_cast<size_t>(sizes.device_count);
  fd_ = memfd_create("neuron-hbm", MFD_CLOEXEC);
  TORCH_CHECK(fd_ >= 0, "cannot create the memory of the neuron devices: memfd_create: ", std::strerror(errno));
  TORCH_CHECK(
      ftruncate(fd_, static_cast<off_t>(bytes)) == 0, "cannot size the memory of the neuron devices to ", bytes,
      " bytes: ftruncate: ", std::strerror(errno));
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd_, 0);
  TORCH_CHECK(
      base != MAP_FAILED, "cannot map the memory of the neuron devices (", bytes,
      " bytes of address space): mmap: ", std::strerror(errno),
      ". Fewer devices (NEURON_RT_NUM_CORES) or less HBM each (NEURON_SIM_HBM) need less.");
  madvise(base, bytes, MADV_HUGEPAGE); // only where the kernel gives huge pages to shared memory on request
  madvise(base, bytes, MADV_DONTDUMP);
  base_ = static_cast<char*>(base);
  created.store(true, std::memory_order_release);
}

bool Arena::contains(const void* address) const noexcept {
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(address) - base_);
  return offset < capacity() * static_cast<uint64_t>(device_count());
}

int Arena::device_of(const void* address) const noexcept { return static_cast<int>(offset_of(address) / capacity()); }

uint64_t Arena::offset_of(const void* address) const noexcept {
  return static_cast<uint64_t>(static_cast<const char*>(address) - base_);
}

void Arena::commit(void* address, size_t bytes) const {
  const size_t available = std::min(host_available(), cgroup_available());
  TORCH_CHECK_WITH(
      OutOfMemoryError, available >= kHostReserve && bytes <= available - kHostReserve, "the host has ",
      available >> 20, " MiB of memory left, too little to back ", bytes >> 20,
      " MiB more of neuron:", device_of(address), "'s HBM. Run fewer processes or a smaller model on this host.");
  // Populating maps the pages at once, about twice as fast as faulting them in one by one; kernels before 5.14 have
  // only fallocate, which backs the file but leaves the faults.
  if (madvise(address, bytes, MADV_POPULATE_WRITE) == 0) return;
  int error = errno;
  if (error == EINVAL) {
    const auto offset = static_cast<off_t>(offset_of(address));
    if (fallocate(fd_, 0, offset, static_cast<off_t>(bytes)) == 0) return;
    error = errno;
  }
  release(address, bytes);
  TORCH_CHECK_WITH(
      OutOfMemoryError, false, "the host cannot back ", bytes, " bytes of neuron:", device_of(address),
      "'s HBM: ", std::strerror(error));
}

void Arena::release(void* address, size_t bytes) const {
  fallocate(
      fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset_of(address)),
      static_cast<off_t>(bytes));
}

} // namespace neuron
