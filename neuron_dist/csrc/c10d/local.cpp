#include "csrc/c10d/local.h"

#include <pybind11/stl.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "csrc/c10d/arguments.h"
#include "csrc/fabric/checks.h"
#include "csrc/fabric/executor.h"
#include "csrc/fabric/program.h"

namespace neuron {

namespace py = pybind11;

namespace {

std::vector<Buffer> buffers_of(const std::vector<at::Tensor>& tensors) {
  std::vector<Buffer> buffers;
  for (const auto& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.is_contiguous(), "expected contiguous tensors");
    buffers.push_back(buffer_of(tensor));
  }
  return buffers;
}

BufferTable table_of(const std::vector<Collective>& calls, std::vector<Buffer> Collective::* side) {
  const int ranks = static_cast<int>(calls.size());
  BufferTable table(ranks, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < (calls[rank].*side).size(); ++i) table.at(rank, i) = (calls[rank].*side)[i].data;
  }
  return table;
}

void execute_locally(
    Op op, const c10d::ReduceOp& reduce_op, int root, const std::vector<std::vector<at::Tensor>>& inputs,
    const std::vector<std::vector<at::Tensor>>& outputs, const std::shared_ptr<ReductionOrders>& orders) {
  const int ranks = static_cast<int>(inputs.size());
  TORCH_CHECK_VALUE(ranks > 0 && outputs.size() == inputs.size(), "expected the tensors of every rank");
  const auto dtype = inputs[0].at(0).scalar_type();
  std::vector<Collective> calls;
  for (int rank = 0; rank < ranks; ++rank) {
    calls.push_back({op, dtype, reduction_of(reduce_op), root, buffers_of(inputs[rank]), buffers_of(outputs[rank])});
  }
  const BufferTable sources = table_of(calls, &Collective::inputs);
  const BufferTable destinations = table_of(calls, &Collective::outputs);
  for (int rank = 0; rank < ranks; ++rank) {
    const Program program = make_program(calls[rank], orders.get(), rank, ranks, /*shared_outputs=*/true);
    execute(program, sources, destinations, {dtype, calls[rank].reduction, ranks, orders != nullptr});
  }
}

// Programs in Python: for each rank instructions (bytes, sources, destinations), of places (rank, segment, offset).
using PlaceTuple = std::tuple<int, int, uint64_t>;
using InstructionTuple = std::tuple<uint64_t, std::vector<PlaceTuple>, std::vector<PlaceTuple>>;

void check_local(
    Op op, const std::vector<uint64_t>& inputs, const std::vector<uint64_t>& outputs,
    const std::vector<std::vector<InstructionTuple>>& given) {
  Collective call;
  call.op = op;
  for (const uint64_t bytes : inputs) call.inputs.push_back({nullptr, bytes});
  for (const uint64_t bytes : outputs) call.outputs.push_back({nullptr, bytes});
  auto places = [](const std::vector<PlaceTuple>& tuples) {
    std::vector<Place> made;
    for (const auto& [rank, segment, offset] : tuples) made.push_back({rank, segment, offset});
    return made;
  };
  std::vector<Program> programs;
  for (const auto& instructions : given) {
    programs.emplace_back();
    for (const auto& [bytes, sources, destinations] : instructions) {
      programs.back().push_back({bytes, places(sources), places(destinations)});
    }
  }
  check_programs(call, programs, /*shared_outputs=*/true);
}

} // namespace

void bind_local(py::module& m) {
  py::enum_<Op>(m, "Op", "Collectives of the fabric.")
      .value("all_reduce", Op::all_reduce)
      .value("reduce", Op::reduce)
      .value("reduce_scatter", Op::reduce_scatter);
  m.def(
      "execute_locally", &execute_locally, py::arg("op"), py::arg("reduce_op"), py::arg("root"), py::arg("inputs"),
      py::arg("outputs"), py::arg("orders"), py::call_guard<py::gil_scoped_release>(),
      "Run the programs of all ranks of a reduction in this process, on the tensors of each rank.");
  m.def(
      "check_programs", &check_local, py::arg("op"), py::arg("inputs"), py::arg("outputs"), py::arg("programs"),
      "Hold the programs of all ranks against buffers of so many bytes, as the checking mode does.");
}

} // namespace neuron
