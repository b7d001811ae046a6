#include "csrc/c10d/process_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/c10d/arguments.h"
#include "csrc/c10d/call_site.h"
#include "csrc/c10d/gil.h"
#include "csrc/c10d/interrupts.h"
#include "csrc/c10d/planner.h"
#include "csrc/device/stream.h"
#include "csrc/fabric/checks.h"
#include "csrc/fabric/standstill.h"

namespace neuron {

using c10d::OpType;

namespace {

std::vector<uint64_t> global_ranks(const Options& options, int size) {
  auto ranks = options.global_ranks_in_group;
  if (ranks.size() != static_cast<size_t>(size)) {
    ranks.resize(size);
    for (int rank = 0; rank < size; ++rank) ranks[rank] = rank;
  }
  return ranks;
}

// How long the checking mode holds an async collective that nobody waits for yet.
constexpr std::chrono::milliseconds kLatest(20);

// The name by which torch's flight-recorder analyzer knows an operation.
std::string flight_name(const std::string& op) {
  if (op == "all_reduce_coalesced") return "all_reduce";
  if (op == "all_gather_coalesced") return "all_gather_into_tensor_coalesced";
  return op;
}

} // namespace

ProcessGroupNeuron::ProcessGroupNeuron(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      planner_(make_planner(options_, global_ranks(*options_, size), rank)), // may refuse the group, before it meets
      communicator_(
          std::make_unique<Communicator>(
              *store, rank, global_ranks(*options_, size), options_->group_name, Deadline(options_->timeout),
              &check_signals)),
      transfers_(std::make_unique<PointToPoint>(*communicator_)),
      device_(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getDevice().index()),
      stream_(new_stream(device_)),
      worker_([device = stream_.device()] { // copies in HBM go to this process's device
        c10::impl::VirtualGuardImpl(at::kPrivateUse1).setDevice(device);
      }) {
  init();
  communicator_->set_caller(
      {&check_signals, [this] { return worker_.on_callers_thread() || works_->waiters > 0; },
       [this] { return worker_.idle(); }});
  communicator_->set_planner(planner_.planner, planner_.round_each_step);
  Recorder::instance().add_group(recorded_group(), global_ranks(*options_, size));
}

ProcessGroupNeuron::~ProcessGroupNeuron() { leave(); }

WorkPtr ProcessGroupNeuron::run(
    const Request& request, std::vector<TensorCollective> collectives, const Tensors& inputs, Tensors outputs) {
  if (!worker_.inside_task()) note_calling_thread();
  run_callbacks_first();
  const c10::Stream stream = current_stream(device_);
  const double ready = stream_time(stream);
  if (!estimate_ && !collectives.empty()) collectives.front().strikes = Faults::instance().next_collective(ready);
  try {
    for (auto& collective : collectives) {
      if (checking()) collective.check_call(communicator_->rank_name(rank_));
      collective.prepare(*communicator_);
    }
  } catch (const std::exception& error) { // no algorithm serves this call; the peers must not wait for us
    report_invalid(error.what());
    throw;
  }
  auto work = c10::make_intrusive<Work>(
      rank_, request.type, ++sequence_number_, request.title, inputs, std::move(outputs), stream_, works_,
      request.async && !coalescing_ && !estimate_);
  if (estimate_) {
    for (const auto& collective : collectives) *estimate_ += collective.seconds();
    work->complete(nullptr);
    return issued(work);
  }
  const char* op = request.title + std::strlen("neuron:");
  auto record = Recorder::instance().begin(
      recorded_group(), op, flight_name(op), sequence_number_, inputs, work->result(),
      request.timeout == c10d::kUnsetTimeout ? options_->timeout : request.timeout, /*is_transfer=*/false);
  const bool in_program_order = !is_callback_stream(stream);
  for (auto& collective : collectives) collective.issue(*communicator_, ready, in_program_order);
  const auto interrupt = std::make_shared<std::exception_ptr>();
  auto task = [this, work, ready, timeout = request.timeout, collectives = std::move(collectives), record, interrupt,
               deferred = checking() && request.async]() mutable {
    auto& recorder = Recorder::instance();
    try {
      if (deferred) work->await_waiter(kLatest);
      recorder.start(*record);
      Outcome outcome;
      outcome.end = ready;
      for (auto& collective : collectives) {
        const double start = outcome.start;
        outcome = collective.run(*communicator_, deadline(timeout), [&] { return recorder.call_site(*record); });
        if (&collective != &collectives.front()) outcome.start = start; // coalesced ones are one operation
      }
      recorder.end(record, outcome);
      work->complete(nullptr, outcome.end);
    } catch (pybind11::error_already_set& error) { // a signal's handler raised while the program waited here
      *interrupt = std::current_exception();
      failed_ = true;
      communicator_->fail(
          c10::str(
              communicator_->rank_name(rank_), " was interrupted in a collective of ", communicator_->group_label()));
      work->complete(
          std::make_exception_ptr(
              c10::DistBackendError(
                  {__func__, __FILE__, __LINE__}, c10::str("interrupted in ", communicator_->group_label()))));
    } catch (...) {
      failed_ = true;
      work->complete(std::current_exception());
    }
  };
  if (request.async || coalescing_) {
    worker_.submit(std::move(task));
  } else {
    const bool ran = worker_.run_here_if_idle(std::move(task));
    if (ran && *interrupt) std::rethrow_exception(*interrupt);
  }
  return issued(work);
}

// Callbacks may call collectives of this group. Every rank must take those before the calls that its program makes
// later, so these wait, as they do on a device whose futures are ready when their call returns.
void ProcessGroupNeuron::run_callbacks_first() {
  if (worker_.inside_task() || !works_->followed.exchange(false)) return;
  const WithoutGil released;
  worker_.drain();
}

void ProcessGroupNeuron::report_invalid(const std::string& why) {
  worker_.run_here_if_idle([this, why, call_site = current_call_site()] {
    try {
      communicator_->run_invalid(why, call_site);
    } catch (const c10::Error&) { // the group is broken already; its ranks know
    }
  });
}

Deadline ProcessGroupNeuron::deadline(std::chrono::milliseconds timeout) const {
  return Deadline(timeout == c10d::kUnsetTimeout ? options_->timeout : timeout);
}

// ---- coalescing. Works are issued at once; the manager gets them as one.

void ProcessGroupNeuron::startCoalescing() {
  coalescing_ = true;
  coalesced_.clear();
}

WorkPtr ProcessGroupNeuron::endCoalescing() {
  coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
}

WorkPtr ProcessGroupNeuron::issued(WorkPtr work) {
  if (coalescing_) coalesced_.push_back(work);
  return work;
}

// ---- groups

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& options) {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_);
  if (own == ranks.end()) return nullptr;
  // torch asks once for each device type of the parent; both get the same backend, as in the parent.
  auto& known = splits_[options->group_name];
  if (auto existing = known ? known->lock() : nullptr) return existing;

  const auto parents = global_ranks(*options_, size_);
  auto child = c10::make_intrusive<Options>(*options_);
  child->timeout = options->timeout;
  child->global_ranks_in_group.clear();
  child->group_name = options->group_name;
  for (const int rank : ranks) child->global_ranks_in_group.push_back(parents.at(rank));
  auto backend = c10::make_intrusive<ProcessGroupNeuron>(
      c10::make_intrusive<c10d::PrefixStore>("neuron/split", store), static_cast<int>(own - ranks.begin()),
      static_cast<int>(ranks.size()), std::move(child));
  known.emplace(c10::intrusive_ptr<c10d::Backend>(backend));
  return backend;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroupNeuron::merge(
    const c10::intrusive_ptr<c10d::Store>& store, const c10::intrusive_ptr<c10d::Backend::Options>& options,
    const int& rank, const int& size) {
  auto merged = c10::make_intrusive<Options>(options->timeout);
  merged->group_name = options->group_name;
  return c10::make_intrusive<ProcessGroupNeuron>(
      c10::make_intrusive<c10d::PrefixStore>("neuron/merge", store), rank, size, std::move(merged));
}

// ---- time

void ProcessGroupNeuron::start_time_estimate() {
  worker_.drain();
  estimate_ = 0;
}

double ProcessGroupNeuron::end_time_estimate() {
  const double seconds = estimate_.value_or(0);
  estimate_.reset();
  return seconds * 1e6;
}

Recorder::Group ProcessGroupNeuron::recorded_group() const {
  return {reinterpret_cast<size_t>(this), {options_->group_name, pg_desc_}};
}

// ---- the end

c10d::ErrorType ProcessGroupNeuron::getError() {
  return failed_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void ProcessGroupNeuron::abort() {
  communicator_->fail(communicator_->rank_name(rank_) + " aborted " + communicator_->group_label());
}

void ProcessGroupNeuron::shutdown() {
  {
    const WithoutGil released;
    worker_.drain(&check_signals);
    leave();
  }
  warn_of_unawaited();
}

void ProcessGroupNeuron::warn_of_unawaited() const {
  const auto count = works_->unawaited();
  if (count == 0) return;
  const auto first = works_->first_dropped();
  const auto text = c10::str(
      communicator_->rank_name(rank_), " destroyed ", communicator_->group_label(), " without ever waiting for ", count,
      " of its works", first.empty() ? "" : ", the first of them " + first,
      ": call wait() on what async_op=True, isend and irecv return, before their tensors are used and the group goes");
  const pybind11::gil_scoped_acquire acquired;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw pybind11::error_already_set();
}

void ProcessGroupNeuron::leave() {
  const WithoutGil released; // callbacks of works that end here may need it
  communicator_->leave();
  transfers_->stop();
  worker_.stop();
}

} // namespace neuron
