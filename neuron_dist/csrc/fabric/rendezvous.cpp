#include "csrc/fabric/rendezvous.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <c10/util/Exception.h>

#include "csrc/device/arena.h"
#include "csrc/fabric/control.h"

namespace neuron {

namespace {

constexpr const char* kAddressKey = "fabric/address";
constexpr size_t kDescriptorsPerMessage = 200; // the kernel takes 253
constexpr size_t kLongestReason = 1000;

#define FABRIC_CHECK(condition, ...) TORCH_CHECK_WITH(DistBackendError, condition, __VA_ARGS__)

struct Hello {
  int32_t rank;
  int32_t size;
  PeerInfo info;
};

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

sockaddr_un abstract_address(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1); // a leading NUL: the abstract namespace
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Fd unix_socket() {
  Fd socket_fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  FABRIC_CHECK(socket_fd, "cannot open a UNIX socket: ", std::strerror(errno));
  return socket_fd;
}

using Watch = std::function<void()>;
constexpr std::chrono::milliseconds kWatchEvery(100);

// Whether `fd` became readable before the deadline.
bool readable(const Fd& fd, const Deadline& deadline, const Watch& watch) {
  pollfd wanted{fd.get(), POLLIN, 0};
  while (poll(&wanted, 1, static_cast<int>(std::min(deadline.left(), kWatchEvery).count())) <= 0) {
    if (deadline.passed()) return false;
    watch();
  }
  return true;
}

// Whether the process at the other end has gone.
bool hung_up(const Fd& connection) {
  pollfd wanted{connection.get(), 0, 0};
  return poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLHUP | POLLERR)) != 0;
}

void wait_for_key(c10d::Store& store, const std::string& key, const Deadline& deadline, const Watch& watch) {
  auto nap = std::chrono::milliseconds(1);
  while (!store.check({key})) {
    FABRIC_CHECK(!deadline.passed(), "it did not come to the store");
    watch();
    std::this_thread::sleep_for(nap = std::min(nap * 2, kWatchEvery));
  }
}

void send_message(const Fd& to, const void* data, size_t bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<void*>(data), bytes};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * descriptors.size()));
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
  std::memcpy(CMSG_DATA(header), descriptors.data(), sizeof(int) * descriptors.size());
  FABRIC_CHECK(
      sendmsg(to.get(), &message, MSG_NOSIGNAL) >= 0,
      "a process left while the group was made (sendmsg: ", std::strerror(errno), ")");
}

// The descriptors of a message of `bytes`. One without descriptors is a reason why the group cannot be made.
std::vector<Fd> receive_message(const Fd& from, void* data, size_t bytes, const char* whom, const Watch& watch) {
  std::array<char, kLongestReason> rest;
  std::array<iovec, 2> parts{iovec{data, bytes}, iovec{rest.data(), rest.size()}};
  std::vector<char> control(CMSG_SPACE(sizeof(int) * kDescriptorsPerMessage));
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t received = recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC);
  std::vector<Fd> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); received > 0 && header; header = CMSG_NXTHDR(&message, header)) {
    const auto* raw = reinterpret_cast<const int*>(CMSG_DATA(header));
    for (size_t i = 0; i < (header->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) descriptors.emplace_back(raw[i]);
  }
  if (received > 0 && descriptors.empty()) {
    const size_t in_data = std::min<size_t>(received, bytes);
    FABRIC_CHECK(false, std::string(static_cast<char*>(data), in_data) + std::string(rest.data(), received - in_data));
  }
  // A process that dies closes its sockets a moment before others see that it is dead.
  for (int i = 0; received <= 0 && i < 20; ++i) {
    watch();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  FABRIC_CHECK(
      received == static_cast<ssize_t>(bytes) && (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0, whom,
      " left while the group was made, or this process may not open ", kDescriptorsPerMessage,
      " more files (`ulimit -n`)");
  return descriptors;
}

Fd own_pidfd() {
  Fd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  FABRIC_CHECK(process, "pidfd_open (needs Linux 5.3): ", std::strerror(errno));
  return process;
}

Fd own_arena() {
  Fd arena(fcntl(Arena::instance().fd(), F_DUPFD_CLOEXEC, 0));
  FABRIC_CHECK(arena, "cannot duplicate the descriptor of the HBM arena: ", std::strerror(errno));
  return arena;
}

// Everything the processes hand around, by rank.
struct Roster {
  explicit Roster(int size) : infos(size), arenas(size), processes(size) {}

  Meeting open(Fd control) {
    Meeting meeting{std::move(control), {}};
    for (size_t rank = 0; rank < infos.size(); ++rank) {
      meeting.peers.push_back(Peer::open(infos[rank], std::move(arenas[rank]), std::move(processes[rank])));
    }
    return meeting;
  }

  std::vector<PeerInfo> infos;
  std::vector<Fd> arenas;
  std::vector<Fd> processes;
};

std::string missing_ranks(const std::vector<Fd>& connections) {
  std::ostringstream text;
  for (size_t rank = 1; rank < connections.size(); ++rank) {
    if (!connections[rank]) text << (text.tellp() > 0 ? ", " : "") << rank;
  }
  return text.str();
}

// What rank 0 tells the others in place of the roster when the group cannot be made.
void dismiss(const std::vector<Fd>& connections, const std::string& why) {
  for (const Fd& connection : connections) {
    if (connection) send(connection.get(), why.data(), std::min(why.size(), kLongestReason), MSG_NOSIGNAL);
  }
}

Meeting host(c10d::Store& store, int size, const Deadline& deadline, const Watch& watch) {
  std::random_device random;
  std::ostringstream unique;
  unique << "neuron-dist-" << getpid() << '-' << std::hex << random() << random();
  socklen_t length;
  const sockaddr_un address = abstract_address(unique.str(), length);
  Fd listener = unix_socket();
  FABRIC_CHECK(
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0 &&
          listen(listener.get(), size) == 0,
      "cannot listen on a UNIX socket: ", std::strerror(errno));
  store.set(kAddressKey, boot_id() + " " + unique.str());

  Roster roster(size);
  roster.infos[0] = Peer::self();
  roster.arenas[0] = own_arena();
  roster.processes[0] = own_pidfd();
  std::vector<Fd> connections(size);
  auto watch_all = [&] {
    watch();
    for (int rank = 1; rank < size; ++rank) {
      FABRIC_CHECK(
          !connections[rank] || !hung_up(connections[rank]), "rank ", rank, " (pid ", roster.infos[rank].pid,
          ") left while the group was made");
    }
  };
  try {
    for (int arrived = 1; arrived < size; ++arrived) {
      FABRIC_CHECK(
          readable(listener, deadline, watch_all), "timed out after ", deadline.timeout().count(),
          " ms while the group was made: rank(s) ", missing_ranks(connections), " of ", size, " did not come");
      Fd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      FABRIC_CHECK(connection && readable(connection, deadline, watch), "a process connected but said nothing");
      Hello hello{};
      auto descriptors = receive_message(connection, &hello, sizeof hello, "a rank", watch);
      FABRIC_CHECK(
          hello.size == size && hello.rank > 0 && hello.rank < size && !connections[hello.rank] &&
              descriptors.size() == 2,
          "a process introduced itself as rank ", hello.rank, " of ", hello.size, " to a group of ", size,
          "; each rank must be given once, and the same world size everywhere");
      roster.infos[hello.rank] = hello.info;
      roster.arenas[hello.rank] = std::move(descriptors[0]);
      roster.processes[hello.rank] = std::move(descriptors[1]);
      connections[hello.rank] = std::move(connection);
    }
  } catch (const c10::Error& error) {
    dismiss(connections, error.what_without_backtrace());
    throw;
  }

  store.deleteKey(kAddressKey); // a later group may meet under the same prefix of the same store
  Fd control = ControlSegment::create(size);
  std::vector<int> all{control.get()};
  for (const auto& arena : roster.arenas) all.push_back(arena.get());
  for (const auto& process : roster.processes) all.push_back(process.get());
  for (int rank = 1; rank < size; ++rank) {
    for (size_t first = 0; first < all.size(); first += kDescriptorsPerMessage) {
      const size_t last = std::min(all.size(), first + kDescriptorsPerMessage);
      send_message(
          connections[rank], roster.infos.data(), sizeof(PeerInfo) * size, {all.begin() + first, all.begin() + last});
    }
  }
  return roster.open(std::move(control));
}

Meeting join(c10d::Store& store, int rank, int size, const Deadline& deadline, const Watch& watch) {
  std::string host_boot_id;
  std::string socket_name;
  try {
    wait_for_key(store, kAddressKey, deadline, watch);
    std::istringstream(store.get_to_str(kAddressKey)) >> host_boot_id >> socket_name;
  } catch (const std::exception& error) {
    FABRIC_CHECK(
        false, "rank ", rank, " heard nothing of rank 0 within ", deadline.timeout().count(),
        " ms while the group was made: ", error.what());
  }
  FABRIC_CHECK(
      host_boot_id == boot_id(), "rank ", rank,
      " and rank 0 are on different hosts; the neuron backend runs all ranks of a group on one host");
  socklen_t length;
  const sockaddr_un address = abstract_address(socket_name, length);
  Fd connection = unix_socket();
  FABRIC_CHECK(
      connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0, "rank ", rank,
      " cannot reach rank 0: ", std::strerror(errno),
      ". Rank 0 has left, or the two run in different network namespaces.");
  const Hello hello{rank, size, Peer::self()};
  const Fd arena = own_arena();
  const Fd process = own_pidfd();
  send_message(connection, &hello, sizeof hello, {arena.get(), process.get()});

  Roster roster(size);
  std::vector<Fd> all;
  while (all.size() < 1 + 2 * static_cast<size_t>(size)) {
    FABRIC_CHECK(
        readable(connection, deadline, watch), "timed out after ", deadline.timeout().count(),
        " ms while the group was made: not all of the ", size, " ranks came");
    for (auto& fd : receive_message(connection, roster.infos.data(), sizeof(PeerInfo) * size, "rank 0", watch)) {
      all.push_back(std::move(fd));
    }
  }
  std::move(all.begin() + 1, all.begin() + 1 + size, roster.arenas.begin());
  std::move(all.begin() + 1 + size, all.end(), roster.processes.begin());
  return roster.open(std::move(all[0]));
}

} // namespace

Meeting meet(c10d::Store& store, int rank, int size, const Deadline& deadline, const Watch& watch) {
  return rank == 0 ? host(store, size, deadline, watch) : join(store, rank, size, deadline, watch);
}

} // namespace neuron
