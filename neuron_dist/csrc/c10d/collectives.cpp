// The collectives of ProcessGroupNeuron: what torch.distributed passes, checked and cut into segments.

#include "csrc/c10d/arguments.h"
#include "csrc/c10d/process_group.h"

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

Tensors flat(const TensorLists& lists) {
  Tensors all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

} // namespace

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

} // namespace neuron
