#include "csrc/c10d/process_group.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "csrc/c10d/arguments.h"
#include "csrc/c10d/call_site.h"
#include "csrc/c10d/gil.h"
#include "csrc/c10d/planner.h"
#include "csrc/device/stream.h"

namespace neuron {

using c10d::OpType;

namespace {

TensorCollective collective(
    Op op, const at::Tensor& like, std::vector<Segments> inputs, std::vector<Segments> outputs, int64_t root = -1) {
  TensorCollective result;
  result.call.op = op;
  result.call.dtype = like.scalar_type();
  result.call.root = static_cast<int>(root);
  result.inputs = std::move(inputs);
  result.outputs = std::move(outputs);
  return result;
}

TensorCollective reduction(
    Op op, const c10d::ReduceOp& reduce_op, std::vector<Segments> inputs, std::vector<Segments> outputs,
    int64_t root = -1) {
  const at::Tensor like = inputs[0].tensor;
  auto result = collective(op, like, std::move(inputs), std::move(outputs), root);
  set_reduction(result, reduce_op);
  return result;
}

void check_pair(const at::Tensor& output, const at::Tensor& input, const char* what) {
  check_tensor(input, what);
  check_tensor(output, what);
  TORCH_CHECK_TYPE(
      output.scalar_type() == input.scalar_type(), what, " output tensor has dtype ", output.scalar_type(),
      ", input tensor ", input.scalar_type());
}

void check_same_count(const Tensors& outputs, const Tensors& inputs) {
  TORCH_CHECK_VALUE(
      outputs.size() == inputs.size() && !inputs.empty(), "got ", outputs.size(), " output tensors for ", inputs.size(),
      " input tensors");
}

std::vector<uint64_t> global_ranks(const Options& options, int size) {
  auto ranks = options.global_ranks_in_group;
  if (ranks.size() != static_cast<size_t>(size)) {
    ranks.resize(size);
    for (int rank = 0; rank < size; ++rank) ranks[rank] = rank;
  }
  return ranks;
}

// The name by which torch's flight-recorder analyzer knows an operation.
std::string flight_name(const std::string& op) {
  if (op == "all_reduce_coalesced") return "all_reduce";
  if (op == "all_gather_coalesced") return "all_gather_into_tensor_coalesced";
  return op;
}

Tensors flat(const TensorLists& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

} // namespace

ProcessGroupNeuron::ProcessGroupNeuron(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, c10::intrusive_ptr<Options> options)
    : Backend(rank, size),
      options_(std::move(options)),
      planner_(make_planner(options_, global_ranks(*options_, size), rank)), // may refuse the group, before it meets
      communicator_(
          std::make_unique<Communicator>(
              *store, rank, global_ranks(*options_, size), options_->group_name, Deadline(options_->timeout))),
      transfers_(std::make_unique<PointToPoint>(*communicator_)),
      device_(c10::impl::VirtualGuardImpl(at::kPrivateUse1).getDevice().index()),
      stream_(new_stream(device_)),
      worker_([device = stream_.device()] { // copies in HBM go to this process's device
        c10::impl::VirtualGuardImpl(at::kPrivateUse1).setDevice(device);
      }) {
  init();
  communicator_->set_planner(planner_.planner, planner_.round_each_step);
  Recorder::instance().add_group(recorded_group(), global_ranks(*options_, size));
}

ProcessGroupNeuron::~ProcessGroupNeuron() { leave(); }

template <class Build>
WorkPtr ProcessGroupNeuron::start(const Request& request, const Tensors& inputs, Tensors outputs, Build build) {
  std::vector<TensorCollective> collectives;
  try {
    collectives = build();
  } catch (const c10::Error& error) {
    report_invalid(error.what_without_backtrace());
    throw;
  }
  return run(request, std::move(collectives), inputs, std::move(outputs));
}

WorkPtr ProcessGroupNeuron::run(
    const Request& request, std::vector<TensorCollective> collectives, const Tensors& inputs, Tensors outputs) {
  run_callbacks_first();
  const c10::Stream stream = current_stream(device_);
  const double ready = stream_time(stream);
  if (!estimate_ && !collectives.empty()) collectives.front().strikes = Faults::instance().next_collective(ready);
  try {
    for (auto& collective : collectives) collective.prepare(*communicator_);
  } catch (const std::exception& error) { // no algorithm serves this call; the peers must not wait for us
    report_invalid(error.what());
    throw;
  }
  auto work = c10::make_intrusive<Work>(
      rank_, request.type, ++sequence_number_, request.title, inputs, std::move(outputs), stream_, followed_);
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
  auto task = [this, work, ready, timeout = request.timeout, collectives = std::move(collectives), record]() mutable {
    auto& recorder = Recorder::instance();
    try {
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
    } catch (...) {
      failed_ = true;
      work->complete(std::current_exception());
    }
  };
  if (request.async || coalescing_) {
    worker_.submit(std::move(task));
  } else {
    worker_.run_here_if_idle(std::move(task));
  }
  return issued(work);
}

// Callbacks may call collectives of this group. Every rank must take those before the calls that its program makes
// later, so these wait, as they do on a device whose futures are ready when their call returns.
void ProcessGroupNeuron::run_callbacks_first() {
  if (worker_.inside_task() || !followed_->exchange(false)) return;
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

// ---- collectives

WorkPtr ProcessGroupNeuron::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const Request request{OpType::BROADCAST, "neuron:broadcast", opts.timeout, opts.asyncOp};
  return start(request, tensors, tensors, [&] {
    const auto& tensor = single(tensors, "broadcast");
    check_root(opts.rootRank, size_);
    const bool root = rank_ == opts.rootRank;
    const std::vector<Segments> data{whole(tensor)}, nothing;
    return std::vector{collective(Op::broadcast, tensor, root ? data : nothing, root ? nothing : data, opts.rootRank)};
  });
}

WorkPtr ProcessGroupNeuron::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  const Request request{OpType::ALLREDUCE, "neuron:all_reduce", opts.timeout, opts.asyncOp};
  return start(request, tensors, tensors, [&] {
    const auto& tensor = single(tensors, "all_reduce");
    return std::vector{reduction(Op::all_reduce, opts.reduceOp, {whole(tensor)}, {whole(tensor)})};
  });
}

WorkPtr ProcessGroupNeuron::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  const Request request{OpType::ALLREDUCE_COALESCED, "neuron:all_reduce_coalesced", opts.timeout, opts.asyncOp};
  return start(request, tensors, tensors, [&] {
    std::vector<TensorCollective> collectives;
    for (const auto& tensor : tensors) {
      check_tensor(tensor, "all_reduce_coalesced");
      collectives.push_back(reduction(Op::all_reduce, opts.reduceOp, {whole(tensor)}, {whole(tensor)}));
    }
    return collectives;
  });
}

WorkPtr ProcessGroupNeuron::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const Request request{OpType::REDUCE, "neuron:reduce", opts.timeout, opts.asyncOp};
  return start(request, tensors, tensors, [&] {
    const auto& tensor = single(tensors, "reduce");
    check_root(opts.rootRank, size_);
    std::vector<Segments> outputs;
    if (rank_ == opts.rootRank) outputs.push_back(whole(tensor));
    return std::vector{reduction(Op::reduce, opts.reduceOp, {whole(tensor)}, std::move(outputs), opts.rootRank)};
  });
}

WorkPtr ProcessGroupNeuron::allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Request request{OpType::ALLGATHER, "neuron:all_gather", opts.timeout, opts.asyncOp};
  return start(request, inputs, flat(outputs), [&] {
    const auto& input = single(inputs, "all_gather input");
    const auto& list = single(outputs, "all_gather output");
    check_list(list, size_, input, "all_gather output");
    return std::vector{collective(Op::all_gather, input, {whole(input)}, wholes(list))};
  });
}

WorkPtr ProcessGroupNeuron::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) {
  const Request request{OpType::_ALLGATHER_BASE, "neuron:_all_gather_base", opts.timeout, opts.asyncOp};
  return start(request, {input}, {output}, [&] { return std::vector{gathering(output, input)}; });
}

WorkPtr ProcessGroupNeuron::allgather_coalesced(
    TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Request request{OpType::ALLGATHER_COALESCED, "neuron:all_gather_coalesced", opts.timeout, opts.asyncOp};
  return start(request, inputs, flat(outputs), [&] {
    TORCH_CHECK_VALUE(
        outputs.size() == static_cast<size_t>(size_), "all_gather_coalesced output has ", outputs.size(),
        " lists for a group of ", size_, " ranks");
    std::vector<TensorCollective> collectives;
    for (size_t i = 0; i < inputs.size(); ++i) {
      check_tensor(inputs[i], "all_gather_coalesced input");
      Tensors from_each;
      for (const auto& list : outputs) {
        check_same_count(list, inputs);
        from_each.push_back(list[i]);
      }
      check_list(from_each, size_, inputs[i], "all_gather_coalesced output");
      collectives.push_back(collective(Op::all_gather, inputs[i], {whole(inputs[i])}, wholes(from_each)));
    }
    return collectives;
  });
}

WorkPtr ProcessGroupNeuron::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  const Request request{OpType::COALESCED, "neuron:all_gather_into_tensor_coalesced", opts.timeout, opts.asyncOp};
  return start(request, inputs, outputs, [&] {
    check_same_count(outputs, inputs);
    std::vector<TensorCollective> collectives;
    for (size_t i = 0; i < inputs.size(); ++i) collectives.push_back(gathering(outputs[i], inputs[i]));
    return collectives;
  });
}

WorkPtr ProcessGroupNeuron::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const Request request{OpType::GATHER, "neuron:gather", opts.timeout, opts.asyncOp};
  return start(request, inputs, flat(outputs), [&] {
    const auto& input = single(inputs, "gather input");
    check_root(opts.rootRank, size_);
    std::vector<Segments> received;
    if (rank_ == opts.rootRank) {
      const auto& list = single(outputs, "gather output");
      check_list(list, size_, input, "gather output");
      received = wholes(list);
    } else {
      TORCH_CHECK_VALUE(outputs.empty(), "gather output list given on rank ", rank_, ", which is not the root");
    }
    return std::vector{collective(Op::gather, input, {whole(input)}, std::move(received), opts.rootRank)};
  });
}

WorkPtr ProcessGroupNeuron::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  const Request request{OpType::SCATTER, "neuron:scatter", opts.timeout, opts.asyncOp};
  return start(request, flat(inputs), outputs, [&] {
    const auto& output = single(outputs, "scatter output");
    check_root(opts.rootRank, size_);
    std::vector<Segments> given;
    if (rank_ == opts.rootRank) {
      const auto& list = single(inputs, "scatter input");
      check_list(list, size_, output, "scatter input");
      given = wholes(list);
    } else {
      TORCH_CHECK_VALUE(inputs.empty(), "scatter input list given on rank ", rank_, ", which is not the root");
    }
    return std::vector{collective(Op::scatter, output, std::move(given), {whole(output)}, opts.rootRank)};
  });
}

WorkPtr ProcessGroupNeuron::reduce_scatter(
    Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) {
  const Request request{OpType::REDUCE_SCATTER, "neuron:reduce_scatter", opts.timeout, opts.asyncOp};
  return start(request, flat(inputs), outputs, [&] {
    const auto& output = single(outputs, "reduce_scatter output");
    const auto& list = single(inputs, "reduce_scatter input");
    check_list(list, size_, output, "reduce_scatter input");
    TORCH_CHECK_VALUE(
        list[rank_].numel() == output.numel(), "reduce_scatter output tensor has ", output.numel(),
        " elements, this rank's input ", list[rank_].numel());
    return std::vector{reduction(Op::reduce_scatter, opts.reduceOp, wholes(list), {whole(output)})};
  });
}

WorkPtr ProcessGroupNeuron::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& opts) {
  const Request request{OpType::_REDUCE_SCATTER_BASE, "neuron:_reduce_scatter_base", opts.timeout, opts.asyncOp};
  return start(request, {input}, {output}, [&] { return std::vector{scattering(output, input, opts.reduceOp)}; });
}

WorkPtr ProcessGroupNeuron::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  const Request request{
      OpType::REDUCE_SCATTER_TENSOR_COALESCED, "neuron:reduce_scatter_tensor_coalesced", opts.timeout, opts.asyncOp};
  return start(request, inputs, outputs, [&] {
    check_same_count(outputs, inputs);
    std::vector<TensorCollective> collectives;
    for (size_t i = 0; i < inputs.size(); ++i) {
      collectives.push_back(scattering(outputs[i], inputs[i], opts.reduceOp));
    }
    return collectives;
  });
}

WorkPtr ProcessGroupNeuron::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  const Request request{OpType::ALLTOALL, "neuron:all_to_all", opts.timeout, opts.asyncOp};
  return start(request, inputs, outputs, [&] {
    TORCH_CHECK_VALUE(!inputs.empty(), "all_to_all input list is empty");
    check_list(inputs, size_, inputs[0], "all_to_all input");
    check_list(outputs, size_, inputs[0], "all_to_all output");
    return std::vector{collective(Op::all_to_all, inputs[0], wholes(inputs), wholes(outputs))};
  });
}

WorkPtr ProcessGroupNeuron::alltoall_base(
    at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
    const c10d::AllToAllOptions& opts) {
  const Request request{OpType::ALLTOALL_BASE, "neuron:all_to_all", opts.timeout, opts.asyncOp};
  return start(request, {input}, {output}, [&] {
    check_pair(output, input, "all_to_all");
    return std::vector{collective(
        Op::all_to_all, input, {row_parts(input, input_splits, size_, "all_to_all input")},
        {row_parts(output, output_splits, size_, "all_to_all output")})};
  });
}

WorkPtr ProcessGroupNeuron::barrier(const c10d::BarrierOptions& opts) {
  const Request request{OpType::BARRIER, "neuron:barrier", opts.timeout, opts.asyncOp};
  return run(request, {TensorCollective{}}, {}, {});
}

void ProcessGroupNeuron::monitoredBarrier(const c10d::BarrierOptions& opts, bool) {
  barrier(opts)->wait(); // every timeout names all ranks that have not come
}

TensorCollective ProcessGroupNeuron::gathering(const at::Tensor& output, const at::Tensor& input) const {
  check_pair(output, input, "all_gather");
  TORCH_CHECK_VALUE(
      output.numel() == input.numel() * size_, "all_gather output tensor has ", output.numel(), " elements, expected ",
      size_, " ranks x ", input.numel());
  return collective(Op::all_gather, input, {whole(input)}, {equal_parts(output, size_, "all_gather output")});
}

TensorCollective ProcessGroupNeuron::scattering(
    const at::Tensor& output, const at::Tensor& input, const c10d::ReduceOp& reduce_op) const {
  check_pair(output, input, "reduce_scatter");
  TORCH_CHECK_VALUE(
      input.numel() == output.numel() * size_, "reduce_scatter input tensor has ", input.numel(),
      " elements, expected ", size_, " ranks x ", output.numel());
  return reduction(Op::reduce_scatter, reduce_op, {equal_parts(input, size_, "reduce_scatter input")}, {whole(output)});
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
  const WithoutGil released;
  worker_.drain();
  leave();
}

void ProcessGroupNeuron::leave() {
  const WithoutGil released; // callbacks of works that end here may need it
  communicator_->leave();
  transfers_->stop();
  worker_.stop();
}

} // namespace neuron
