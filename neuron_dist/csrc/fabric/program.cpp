#include "csrc/fabric/program.h"

#include <algorithm>

namespace neuron {

namespace {

// Where rank k's share of `bytes` begins. On cache lines, so that two ranks never write the same one.
uint64_t share_begin(uint64_t bytes, int k, int size) {
  const uint64_t lines = (bytes + 63) / 64;
  return std::min(bytes, lines * k / size * 64);
}

std::vector<Place> everyone(int size, int segment, uint64_t offset) {
  std::vector<Place> places;
  places.reserve(size);
  for (int rank = 0; rank < size; ++rank) places.push_back({rank, segment, offset});
  return places;
}

// Calls `visit(begin, end, order)` for the parts of the bytes [begin, end) of a block that are summed in one order.
// The block has `block_bytes` and is the `block`-th of `blocks` equal ones of the schedule's space.
template <class Visit>
void for_each_chunk(
    const ReductionOrders* orders, uint64_t begin, uint64_t end, uint64_t block_bytes, uint64_t element_bytes,
    int block, int blocks, Visit visit) {
  if (begin >= end) return;
  if (!orders) return visit(begin, end, std::shared_ptr<const Order>());
  const uint64_t block_units = orders->units / blocks;
  const uint64_t first_unit = block_units * block;
  const uint64_t elements = block_bytes / element_bytes;
  auto edge = [&](uint64_t unit) { // the unit's first byte in the block: elements * unit / units, without overflow
    unit = std::clamp(unit, first_unit, first_unit + block_units) - first_unit;
    return (elements / block_units * unit + elements % block_units * unit / block_units) * element_bytes;
  };
  for (const auto& chunk : orders->chunks) {
    const uint64_t from = std::max(begin, edge(chunk.begin));
    const uint64_t to = std::min(end, edge(chunk.end));
    if (from < to) visit(from, to, orders->orders[chunk.order]);
  }
}

std::vector<Place> shifted(std::vector<Place> places, uint64_t offset) {
  for (Place& place : places) place.offset = offset;
  return places;
}

} // namespace

Program make_program(const Collective& call, const ReductionOrders* orders, int rank, int size, bool shared_outputs) {
  Program program;
  auto receive = [&](int from, int segment, int output) {
    const uint64_t bytes = call.outputs[output].bytes;
    if (bytes > 0) program.push_back({bytes, {{from, segment, 0}}, {{rank, output, 0}}});
  };
  // Sums the bytes [begin, end) of everyone's `segment` into the destinations. Blocks are those of the plan's space.
  auto reduce = [&](int segment, uint64_t begin, uint64_t end, const std::vector<Place>& to, int block, int blocks) {
    for_each_chunk(
        orders, begin, end, call.inputs[segment].bytes, c10::elementSize(call.dtype), block, blocks,
        [&](uint64_t from, uint64_t until, std::shared_ptr<const Order> order) {
          program.push_back({until - from, everyone(size, segment, from), shifted(to, from), std::move(order)});
        });
  };

  switch (call.op) {
    case Op::all_reduce:
    case Op::reduce: {
      std::vector<Place> destinations;
      for (int to = 0; to < size; ++to) {
        const bool receives = call.op == Op::all_reduce || to == call.root;
        if (receives && (shared_outputs || to == rank)) destinations.push_back({to, 0, 0});
      }
      if (destinations.empty()) break;
      const uint64_t bytes = call.inputs[0].bytes;
      const uint64_t begin = shared_outputs ? share_begin(bytes, rank, size) : 0;
      const uint64_t end = shared_outputs ? share_begin(bytes, rank + 1, size) : bytes;
      reduce(0, begin, end, destinations, 0, 1);
      break;
    }
    case Op::reduce_scatter: reduce(rank, 0, call.outputs[0].bytes, {{rank, 0, 0}}, rank, size); break;
    case Op::broadcast:
      if (rank != call.root) receive(call.root, 0, 0);
      break;
    case Op::scatter: receive(call.root, rank, 0); break;
    case Op::gather:
    case Op::all_gather:
    case Op::all_to_all:
      if (call.outputs.empty()) break; // not the root of a gather
      for (int k = 0; k < size; ++k) { // each rank begins with itself, so that they do not all read the same peer
        const int from = (rank + k) % size;
        receive(from, call.op == Op::all_to_all ? rank : 0, from);
      }
      break;
    case Op::barrier:
    case Op::send_recv:
    case Op::invalid: break;
  }
  return program;
}

} // namespace neuron
