#include "csrc/fabric/communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <sstream>
#include <thread>

#include <sched.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include "csrc/device/arena.h"
#include "csrc/fabric/checks.h"
#include "csrc/fabric/groups.h"
#include "csrc/fabric/program.h"
#include "csrc/fabric/signature.h"
#include "csrc/fabric/traffic.h"

namespace neuron {

namespace {

// Kinds of calls whose plans are kept; a job has some dozens. Past this all are made anew.
constexpr size_t kMostPrepared = 4096;

// How many segments make the size that nccl-tests gives a collective.
int segments_counted(Op op, int ranks) {
  const bool one = op == Op::all_reduce || op == Op::reduce || op == Op::broadcast || op == Op::barrier;
  return one ? 1 : ranks;
}

SpinPolicy spin_policy(int ranks) {
  cpu_set_t cores;
  const int usable = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
  return ranks <= usable ? SpinPolicy{1000, 50} : SpinPolicy{0, 50};
}

// Bytes of every segment of the call, or kUneven.
uint64_t segment_bytes(const Collective& call) {
  if (call.inputs.empty() && call.outputs.empty()) return 0;
  const uint64_t bytes = (call.inputs.empty() ? call.outputs : call.inputs)[0].bytes;
  auto even = [bytes](const Buffer& buffer) { return buffer.bytes == bytes; };
  const bool all_even = std::all_of(call.inputs.begin(), call.inputs.end(), even) &&
      std::all_of(call.outputs.begin(), call.outputs.end(), even);
  return all_even ? bytes : Descriptor::kUneven;
}

template <class Map>
typename Map::mapped_type find(std::mutex& mutex, const Map& map, const typename Map::key_type& key) {
  std::lock_guard lock(mutex);
  const auto found = map.find(key);
  return found == map.end() ? nullptr : found->second;
}

template <class Map>
void keep(std::mutex& mutex, Map& map, const typename Map::key_type& key, typename Map::mapped_type value) {
  std::lock_guard lock(mutex);
  if (map.size() >= kMostPrepared) map.clear();
  map[key] = std::move(value);
}

} // namespace

Communicator::Communicator(
    c10d::Store& store, int rank, std::vector<uint64_t> global_ranks, std::string group_name, const Deadline& deadline,
    const std::function<void()>& while_waiting)
    : Communicator(
          meet(
              store, rank, static_cast<int>(global_ranks.size()), deadline,
              [&] {
                while_waiting();
                const auto death = death_among(global_ranks);
                TORCH_CHECK_WITH(DistBackendError, death.empty(), death, " while group '", group_name, "' was made");
              }),
          rank, global_ranks, group_name) {}

Communicator::Communicator(Meeting meeting, int rank, std::vector<uint64_t> global_ranks, std::string group_name)
    : rank_(rank),
      size_(static_cast<int>(global_ranks.size())),
      global_ranks_(std::move(global_ranks)),
      group_name_(std::move(group_name)),
      peers_(std::move(meeting.peers)),
      control_(meeting.control, size_),
      spin_(spin_policy(size_)) {}

Communicator::~Communicator() { remove_group(*this); }

void Communicator::set_planner(Planner planner, bool round_each_step) {
  planner_ = std::move(planner);
  round_each_step_ = round_each_step;
}

Outcome Communicator::run(
    const Collective& call, std::shared_ptr<const Prepared> prepared, double ready, const Strikes& strikes,
    const Deadline& deadline, const CallSite& call_site) {
  begin_call(deadline, call_site);
  if (const auto fault = strikes.chip_down(); !fault.empty())
    give_up(
        rank_name(rank_) + " (pid " + std::to_string(getpid()) + ") lost the chip under it (fault '" + fault + "')");
  const double delayed = strikes.strike(Fault::Point::call);
  post(call, *prepared, std::max(ready, last_end_) + delayed);
  arrive();
  wait_for(control_.group().arrival, &RankState::arrived, "to start it", deadline, call_site);
  check_agreement(call_site);
  prepared = agreed(call, std::move(prepared));
  const Outcome timing = outcome(*prepared);
  last_end_ = timing.end;
  strikes.strike(Fault::Point::inside);
  if (call.op == Op::barrier) return timing;

  // Nobody reads the payload areas of a call once the next has begun, so a call whose inputs all rode there ends
  // here. Otherwise peers may still be reading our inputs and writing our outputs.
  const bool inlined = all_inlined();
  BufferTable inputs(size_, size_);
  BufferTable outputs(size_, size_);
  find_buffers(call, inlined, inputs, outputs);
  execute(prepared->program, inputs, outputs, {call.dtype, call.reduction, size_, round_each_step_});
  if (!inlined) {
    depart();
    wait_for(control_.group().departure, &RankState::departed, "to finish it", deadline, call_site);
  }
  strikes.corrupt(call.outputs);
  strikes.strike(Fault::Point::after);
  return timing;
}

// Faults strike by each rank's own count of calls, so one may know of a fault that others have yet to meet.
std::shared_ptr<const Communicator::Prepared> Communicator::agreed(
    const Collective& call, std::shared_ptr<const Prepared> own) {
  uint64_t faults = 0, bytes = 0;
  bool alike = true;
  for (int rank = 0; rank < size_; ++rank) {
    const Descriptor& descriptor = control_.descriptor(rank, call_);
    faults |= descriptor.faults;
    bytes = std::max(bytes, descriptor.bytes);
    alike = alike && descriptor.faults == own->faults;
  }
  return alike ? own : prepare(call, faults, bytes);
}

void Communicator::check_agreement(const CallSite& call_site) {
  const Signatures signatures(control_, global_ranks_, call_);
  const auto mismatch = signatures.mismatch();
  if (mismatch.empty()) return;
  // Every rank finds this at the same call, so each can say where it was made.
  tell_call_site(call_site());
  const Deadline patience(std::chrono::seconds(1));
  for (int rank = 0; rank < size_; ++rank) {
    while (control_.rank(rank).told.load(std::memory_order_acquire) != call_ && !patience.passed() &&
           !peers_[rank]->dead())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  give_up("collective #" + std::to_string(call_) + " of " + group_label() + ": " + mismatch + signatures.calls());
}

void Communicator::tell_call_site(const std::string& call_site) {
  RankState& state = control_.rank(rank_);
  const size_t kept = std::min(call_site.size(), sizeof state.call_site - 1); // its end says more than its beginning
  std::memcpy(state.call_site, call_site.data() + call_site.size() - kept, kept);
  state.call_site[kept] = 0;
  state.told.store(call_, std::memory_order_release);
}

std::shared_ptr<const Communicator::Prepared> Communicator::prepare(
    const Collective& call, uint64_t faults, uint64_t bytes) {
  const uint64_t even = segment_bytes(call);
  uint64_t largest = 0;
  for (const auto* buffers : {&call.inputs, &call.outputs}) {
    for (const Buffer& buffer : *buffers) largest = std::max(largest, buffer.bytes);
  }
  const uint64_t traits = static_cast<uint64_t>(call.op) | static_cast<uint64_t>(call.reduction) << 8 |
      static_cast<uint64_t>(static_cast<uint8_t>(call.dtype)) << 16 | (even == Descriptor::kUneven ? 1ull << 24 : 0);
  bytes = std::max(bytes, largest * segments_counted(call.op, size_));
  const Kind kind{traits, static_cast<uint64_t>(call.root), bytes, faults};
  const auto known = find(plans_mutex_, prepared_, kind);
  if (known && even != Descriptor::kUneven) return known;
  auto made = std::make_shared<Prepared>();
  made->bytes = bytes;
  made->faults = faults;
  if (known) {
    made->plan = known->plan;
  } else if (planner_ && size_ > 1) {
    made->plan = planner_({call.op, bytes, call.root, /*peer=*/-1, faults});
  }
  const auto* orders = made->plan ? made->plan->orders.get() : nullptr;
  if (checking() && even != Descriptor::kUneven && call.root < 0) { // of a rooted op a rank knows its own side alone
    std::vector<Program> programs;
    for (int rank = 0; rank < size_; ++rank)
      programs.push_back(make_program(call, orders, rank, size_, peers_read_inputs(call)));
    check_programs(call, programs, peers_write_outputs(call));
  }
  made->program = make_program(call, orders, rank_, size_, peers_read_inputs(call));
  keep(plans_mutex_, prepared_, kind, made);
  return made;
}

std::shared_ptr<const Plan> Communicator::plan_transfer(int from, int to, uint64_t bytes) {
  const uint64_t faults = Faults::instance().fabric();
  const Kind kind{static_cast<uint64_t>(from), static_cast<uint64_t>(to), bytes, faults};
  auto plan = find(plans_mutex_, transfers_, kind);
  if (plan || !planner_) return plan;
  plan = planner_({Op::send_recv, bytes, from, to, faults});
  keep(plans_mutex_, transfers_, kind, plan);
  return plan;
}

double Communicator::issue(const Prepared& prepared, double ready) {
  if (!prepared.plan) return ready;
  std::lock_guard lock(plans_mutex_);
  const double begin = Traffic::instance().issue(*prepared.plan, std::max(ready, issued_end_));
  issued_end_ = begin + prepared.plan->seconds;
  return begin;
}

Outcome Communicator::outcome(const Prepared& prepared) const {
  Outcome result;
  result.bytes = prepared.bytes;
  result.plan = prepared.plan;
  double seconds = prepared.plan ? prepared.plan->seconds : 0;
  int64_t latest = 0, before = 0; // arrivals of the last rank and of the one before it
  for (int rank = 0; rank < size_; ++rank) {
    const Descriptor& descriptor = control_.descriptor(rank, call_);
    result.start = std::max(result.start, descriptor.ready);
    if (descriptor.faults == prepared.faults) seconds = std::max(seconds, descriptor.seconds);
    before = std::max(before, std::min(latest, descriptor.arrived_ns));
    if (descriptor.arrived_ns <= latest) continue;
    latest = descriptor.arrived_ns;
    result.last = rank;
  }
  result.end = result.start + seconds;
  if (size_ == 1) {
    result.last = -1;
  } else {
    result.waited_ns = latest - control_.descriptor(rank_, call_).arrived_ns;
    result.held_up_ns = latest - before;
  }
  return result;
}

void Communicator::run_invalid(const std::string& why, const std::string& call_site) {
  begin_call(Deadline(std::chrono::minutes(1)), [&] { return call_site; });
  Descriptor& descriptor = control_.descriptor(rank_, call_);
  descriptor = {};
  descriptor.op = Op::invalid;
  why.copy(descriptor.note, sizeof descriptor.note - 1);
  tell_call_site(call_site);
  arrive();
}

void Communicator::begin_call(const Deadline& deadline, const CallSite& call_site) {
  check();
  // Only after an invalid call, which did not wait: its area may not be reused before everyone has read it.
  if (call_ > 0) wait_for(control_.group().arrival, &RankState::arrived, "to start it", deadline, call_site);
  ++call_;
}

void Communicator::post(const Collective& call, const Prepared& prepared, double ready) {
  const bool inlined = !peers_read_inputs(call);
  Descriptor& descriptor = control_.descriptor(rank_, call_);
  descriptor.op = call.op;
  descriptor.reduction = call.reduction;
  descriptor.dtype = static_cast<int8_t>(call.dtype);
  descriptor.inlined = inlined;
  descriptor.root = call.root;
  descriptor.ready = ready;
  descriptor.seconds = prepared.plan ? prepared.plan->seconds : 0;
  descriptor.faults = prepared.faults;
  descriptor.bytes = prepared.bytes;
  descriptor.arrived_ns = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  descriptor.segment_bytes = segment_bytes(call);
  descriptor.input_count = static_cast<uint32_t>(call.inputs.size());
  descriptor.output_count = static_cast<uint32_t>(call.outputs.size());

  auto range_of = [](const Buffer& buffer) {
    const bool shared = Arena::exists() && Arena::instance().contains(buffer.data);
    return Range{shared ? Arena::instance().offset_of(buffer.data) : 0, buffer.bytes};
  };
  std::transform(call.inputs.begin(), call.inputs.end(), control_.inputs(rank_, call_), range_of);
  std::transform(call.outputs.begin(), call.outputs.end(), control_.outputs(rank_, call_), range_of);
  if (!inlined) return;
  char* payload = control_.payload(rank_, call_);
  for (const Buffer& input : call.inputs) {
    if (input.bytes > 0) std::memcpy(payload, input.data, input.bytes);
    payload += input.bytes;
  }
}

void Communicator::arrive() {
  control_.rank(rank_).arrived.store(call_, std::memory_order_relaxed);
  control_.group().arrival.arrive(call_, size_);
}

void Communicator::depart() {
  control_.rank(rank_).departed.store(call_, std::memory_order_relaxed);
  control_.group().departure.arrive(++departures_, size_);
}

bool Communicator::peers_read_inputs(const Collective& call) const {
  const uint64_t bytes = segment_bytes(call);
  if (bytes == Descriptor::kUneven) return !call.inputs.empty();
  const bool one_each = call.op == Op::scatter || call.op == Op::reduce_scatter || call.op == Op::all_to_all;
  return bytes * (one_each ? size_ : 1) > kInlineBytes; // the same on every rank if the calls agree
}

bool Communicator::peers_write_outputs(const Collective& call) const {
  return peers_read_inputs(call) && (call.op == Op::all_reduce || call.op == Op::reduce);
}

bool Communicator::all_inlined() const {
  for (int rank = 0; rank < size_; ++rank) {
    if (!control_.descriptor(rank, call_).inlined) return false;
  }
  return true;
}

void Communicator::find_buffers(const Collective& call, bool inlined, BufferTable& inputs, BufferTable& outputs) {
  for (int rank = 0; rank < size_; ++rank) {
    const Descriptor& descriptor = control_.descriptor(rank, call_);
    const Range* ranges = control_.inputs(rank, call_);
    uint64_t in_payload = 0;
    for (uint32_t i = 0; i < descriptor.input_count; ++i) {
      inputs.at(rank, i) = rank == rank_ ? call.inputs[i].data
          : descriptor.inlined           ? control_.payload(rank, call_) + in_payload
                                         : peers_[rank]->map(ranges[i].offset, ranges[i].bytes);
      in_payload += ranges[i].bytes;
    }
    if (rank == rank_) {
      for (size_t i = 0; i < call.outputs.size(); ++i) outputs.at(rank, i) = call.outputs[i].data;
    } else if (!inlined && peers_write_outputs(call)) {
      const Range* written = control_.outputs(rank, call_);
      for (uint32_t i = 0; i < descriptor.output_count; ++i) {
        outputs.at(rank, i) = peers_[rank]->map(written[i].offset, written[i].bytes);
      }
    }
  }
}

} // namespace neuron
