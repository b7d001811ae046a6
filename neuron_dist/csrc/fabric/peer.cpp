#include "csrc/fabric/peer.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <c10/util/Exception.h>

#include "csrc/device/arena.h"

namespace neuron {

namespace {

std::mutex known_mutex;
std::map<ino_t, std::weak_ptr<Peer>> known; // by the inode of the arena, unique among living memfds

// The kernel's pidfd_info, which its headers have since Linux 6.13. A pidfd that was open when its process ended can
// tell how it ended, even when the parent has reaped it (since 6.15).
struct PidfdInfo {
  static constexpr uint64_t kExit = 1 << 3;
  static constexpr unsigned long kGet = _IOWR(0xFF, 11, char[64]);

  uint64_t mask;
  uint64_t cgroup;
  uint32_t ids[11]; // pid, tgid, ppid and the user's and group's
  int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);

std::string stat_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  return {std::istreambuf_iterator<char>(file), {}};
}

// The letter behind the name, which may itself hold anything; 0 without such a process.
char state_of(const std::string& stat) {
  const auto name_end = stat.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= stat.size() ? 0 : stat[name_end + 2];
}

ino_t inode_of(int fd) {
  struct stat status{};
  TORCH_CHECK(fstat(fd, &status) == 0, "fstat of a process's HBM: ", std::strerror(errno));
  return status.st_ino;
}

} // namespace

PeerInfo Peer::self() { return {getpid(), Arena::device_count(), Arena::capacity()}; }

std::shared_ptr<Peer> Peer::open(const PeerInfo& info, Fd arena, Fd process) {
  const ino_t inode = inode_of(arena.get());
  const bool is_self = inode == inode_of(Arena::instance().fd()); // pids can repeat between namespaces
  std::lock_guard lock(known_mutex);
  auto& slot = known[inode];
  auto peer = slot.lock();
  if (!peer) slot = peer = std::make_shared<Peer>(info, std::move(arena), std::move(process), is_self);
  return peer;
}

Peer::Peer(const PeerInfo& info, Fd arena, Fd process, bool is_self)
    : info_(info),
      arena_(std::move(arena)),
      process_(std::move(process)),
      is_self_(is_self),
      windows_(info.device_count) {}

Peer::~Peer() {
  if (is_self_) return;
  for (auto& window : windows_) {
    if (char* base = window.load()) munmap(base, info_.capacity);
  }
}

char* Peer::map(uint64_t offset, uint64_t bytes) {
  const uint64_t device = offset / info_.capacity;
  const uint64_t start = offset % info_.capacity;
  TORCH_CHECK(
      device < windows_.size() && bytes <= info_.capacity - start, "process ", info_.pid,
      " named a range outside its HBM: ", bytes, " bytes at ", offset);
  return window(device) + start;
}

char* Peer::window(uint64_t device) {
  if (char* mapped = windows_[device].load(std::memory_order_acquire)) return mapped;
  if (is_self_) {
    char* own = Arena::instance().device_base(static_cast<int>(device));
    windows_[device].store(own, std::memory_order_release);
    return own;
  }
  void* base = mmap(
      nullptr, info_.capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena_.get(),
      static_cast<off_t>(device * info_.capacity));
  TORCH_CHECK(base != MAP_FAILED, "cannot map the HBM of process ", info_.pid, ": mmap: ", std::strerror(errno));
  madvise(base, info_.capacity, MADV_DONTDUMP);
  char* expected = nullptr;
  if (!windows_[device].compare_exchange_strong(expected, static_cast<char*>(base))) {
    munmap(base, info_.capacity); // another thread was first
    return expected;
  }
  return static_cast<char*>(base);
}

bool Peer::dead() const {
  pollfd exited{process_.get(), POLLIN, 0};
  return poll(&exited, 1, 0) > 0;
}

bool Peer::stopped() const {
  const char state = state_of(stat_of(info_.pid));
  return state == 'T' || state == 't';
}

std::string Peer::describe_death() const {
  const auto status = exit_status();
  if (!status) return "has exited";
  if (WIFSIGNALED(*status)) return std::string("was killed by SIG") + sigabbrev_np(WTERMSIG(*status));
  return "exited with code " + std::to_string(WEXITSTATUS(*status));
}

// The wait status of a dead process.
std::optional<int> Peer::exit_status() const {
  PidfdInfo info{};
  info.mask = PidfdInfo::kExit;
  if (ioctl(process_.get(), PidfdInfo::kGet, &info) == 0 && (info.mask & PidfdInfo::kExit)) return info.exit_code;
  // Before that, the last field of its stat file, for as long as its parent has not reaped it.
  const std::string stat = stat_of(info_.pid);
  if (state_of(stat) != 'Z') return std::nullopt;
  return std::atoi(stat.c_str() + stat.find_last_of(' '));
}

} // namespace neuron
