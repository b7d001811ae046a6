#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "csrc/fabric/collective.h"
#include "csrc/fabric/control.h"
#include "csrc/fabric/deadline.h"
#include "csrc/fabric/executor.h"
#include "csrc/fabric/faults.h"
#include "csrc/fabric/peer.h"
#include "csrc/fabric/plan.h"
#include "csrc/fabric/program.h"
#include "csrc/fabric/rendezvous.h"
#include "csrc/fabric/standstill.h"

namespace neuron {

// When a collective ran in simulated time, the same on all ranks, and how.
struct Outcome {
  double start = 0; // seconds
  double end = 0;
  uint64_t bytes = 0; // as nccl-tests counts them
  std::shared_ptr<const Plan> plan; // null in a group of one
  int last = -1; // the group's rank that arrived last; -1 where nobody waits for anybody
  int64_t waited_ns = 0; // host time that this rank waited for it
  int64_t held_up_ns = 0; // host time by which it came after the one before it
};

// Where in the program a call was made, "train.py:41 in step"; empty if unknown. Asked only when a message needs it.
using CallSite = std::function<std::string()>;

// One rank's end of a group. A collective is: post what we call with which buffers, arrive, compare everyone's call,
// run our program, depart. Collectives of one communicator run one at a time, in the same order on every rank.
//
// Failures are DistBackendErrors. A mismatch, a death, a timeout or an abort breaks the group on all its ranks: the
// first error's text is what every later call gets.
class Communicator {
 public:
  // Meets the other ranks; blocks until all have come. `global_ranks` names the ranks in messages. `while_waiting` runs
  // every 100 ms; what it throws ends the wait.
  Communicator(
      c10d::Store& store, int rank, std::vector<uint64_t> global_ranks, std::string group_name,
      const Deadline& deadline, const std::function<void()>& while_waiting);
  ~Communicator();

  int rank() const { return rank_; }
  int size() const { return size_; }

  // Plans the collectives from now on; without a planner they take no time and reduce in rank order.
  void set_planner(Planner planner, bool round_each_step);

  // The program that calls the collectives. All are asked on the thread of a collective, but `idle`.
  struct Caller {
    std::function<void()> while_waiting = [] {}; // every 100 ms; what it throws ends the collective on this rank
    std::function<bool()> held_up = [] { return false; }; // goes on only when the collective under way has ended
    std::function<bool()> idle = [] { return false; }; // has no collective of this group under way or issued
  };
  void set_caller(Caller caller); // once

  // A plan and this rank's program for it: the same for all calls of one kind.
  struct Prepared {
    uint64_t bytes; // as nccl-tests counts them
    uint64_t faults; // of the fabric that it is planned around
    std::shared_ptr<const Plan> plan; // null in a group of one
    Program program;
  };

  // By the sizes of the call's buffers, on any thread. Throws if no algorithm serves the call.
  std::shared_ptr<const Prepared> prepare(const Collective& call) {
    return prepare(call, Faults::instance().fabric(), 0);
  }
  // A collective that its rank could start at `ready`: when, as far as this rank knows, the group's previous one has
  // ended and the links are free for it (see Traffic). Calls come in program order.
  double issue(const Prepared& prepared, double ready);
  // Runs one collective that may start at the simulated time `ready`. The buffers that peers touch must lie in the
  // arena (see below).
  Outcome run(
      const Collective& call, std::shared_ptr<const Prepared> prepared, double ready, const Strikes& strikes,
      const Deadline& deadline, const CallSite& call_site);
  // In the place of a collective that this rank found invalid: tells the others why. Does not wait for them.
  void run_invalid(const std::string& why, const std::string& call_site);

  // Which buffers peers touch: none if the inputs ride in the control block; else they read the inputs, and where the
  // ranks share the work of a reduction they write the outputs.
  bool peers_read_inputs(const Collective& call) const;
  bool peers_write_outputs(const Collective& call) const;

  // Breaks the group on all its ranks. The first reason stays.
  void fail(const std::string& reason);
  // Leaves the group: what this rank has under way ends with an error, and peers that wait for it learn why.
  void leave();
  // Throws if the group is broken or this rank has left it.
  void check() const;

  // For send and recv, which take turns:
  std::shared_ptr<const Plan> plan_transfer(int from, int to, uint64_t bytes); // null without a planner
  ControlSegment& control() { return control_; }
  Peer& peer(int rank) { return *peers_[rank]; }
  const SpinPolicy& spin() const { return spin_; }
  std::string rank_name(int rank) const; // "rank 5"
  std::string group_label() const; // "group 'x'", for messages
  // For Standstill:
  uint64_t global_rank(int rank) const { return global_ranks_[rank]; }
  bool idle() const { return caller_.idle(); }
  WaitNote& own_note() { return control_.rank(rank_).waits; }
  std::vector<WaitNote::Hop> note_of(int rank) const { return control_.rank(rank).waits.read(); }
  bool closed_note_of(int rank) const { return control_.rank(rank).waits.closed(); }
  // " in all_reduce(SUM, Float[3]) #2 of group 'a' (ranks 0, 1) at train.py:9 in step"
  std::string describe_wait(const std::string& call_site) const;
  // Why `rank` will never answer ("rank 5 (pid 7) was killed by SIGKILL"), or empty while it may.
  std::string cannot_answer(int rank) const;
  [[noreturn]] void give_up(const std::string& reason); // fail, then throw

 private:
  Communicator(Meeting meeting, int rank, std::vector<uint64_t> global_ranks, std::string group_name);

  using Kind = std::array<uint64_t, 4>; // what tells calls apart that need plans of their own

  // Planned around `faults`, for at least so many bytes.
  std::shared_ptr<const Prepared> prepare(const Collective& call, uint64_t faults, uint64_t bytes);
  std::shared_ptr<const Prepared> agreed(const Collective& call, std::shared_ptr<const Prepared> own);
  void begin_call(const Deadline& deadline, const CallSite& call_site);
  void check_agreement(const CallSite& call_site);
  void tell_call_site(const std::string& call_site);
  std::string absent(int rank) const; // for a timeout: who has not come, and what it did last
  void post(const Collective& call, const Prepared& prepared, double ready);
  Outcome outcome(const Prepared& prepared) const;
  void arrive();
  void depart();
  void wait_for(
      Barrier& barrier, std::atomic<uint32_t> RankState::* progress, const char* what, const Deadline& deadline,
      const CallSite& call_site);
  bool all_inlined() const;
  void find_buffers(const Collective& call, bool inlined, BufferTable& inputs, BufferTable& outputs);

  int rank_;
  int size_;
  std::vector<uint64_t> global_ranks_;
  std::string group_name_;
  std::vector<std::shared_ptr<Peer>> peers_;
  ControlSegment control_;
  SpinPolicy spin_;
  uint32_t call_ = 0; // number of the collective under way, the same on all ranks
  uint32_t departures_ = 0; // of the calls that end with one
  Planner planner_;
  bool round_each_step_ = false;
  Caller caller_;
  std::mutex plans_mutex_; // of what follows; never held while planning, which may wait for Python
  std::map<Kind, std::shared_ptr<const Prepared>> prepared_;
  std::map<Kind, std::shared_ptr<const Plan>> transfers_; // by sender, receiver, bytes, faults
  double issued_end_ = 0; // of the latest issued, as far as this rank knows
  double last_end_ = 0; // simulated: collectives of one group follow each other
};

} // namespace neuron
