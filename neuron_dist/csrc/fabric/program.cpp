#include "csrc/fabric/program.h"

#include <algorithm>

namespace neuron {

namespace {

// Where rank k's share of `bytes` begins. On cache lines, so that two ranks never write the same one.
uint64_t share_begin(uint64_t bytes, int k, int size) {
  const uint64_t lines = (bytes + 63) / 64;
  return std::min(bytes, lines * k / size * 64);
}

std::vector<Place> input_of_everyone(int size, int segment, uint64_t offset) {
  std::vector<Place> places;
  places.reserve(size);
  for (int rank = 0; rank < size; ++rank) places.push_back({rank, segment, offset});
  return places;
}

} // namespace

Program direct_program(const Collective& call, int rank, int size, bool shared_outputs) {
  Program program;
  auto receive = [&](int from, int segment, int output) {
    const uint64_t bytes = call.outputs[output].bytes;
    if (bytes > 0) program.push_back({bytes, {{from, segment, 0}}, {{rank, output, 0}}});
  };
  auto reduce_share = [&](uint64_t begin, uint64_t end, std::vector<Place> destinations) {
    if (begin < end) program.push_back({end - begin, input_of_everyone(size, 0, begin), std::move(destinations)});
  };

  switch (call.op) {
    case Op::all_reduce:
    case Op::reduce: {
      const uint64_t bytes = call.inputs[0].bytes;
      const bool to_all = call.op == Op::all_reduce;
      if (!shared_outputs) {
        if (to_all || rank == call.root) reduce_share(0, bytes, {{rank, 0, 0}});
        break;
      }
      const uint64_t begin = share_begin(bytes, rank, size);
      std::vector<Place> destinations;
      for (int to = 0; to < size; ++to) {
        if (to_all || to == call.root) destinations.push_back({to, 0, begin});
      }
      reduce_share(begin, share_begin(bytes, rank + 1, size), std::move(destinations));
      break;
    }
    case Op::reduce_scatter:
      if (call.outputs[0].bytes > 0) {
        program.push_back({call.outputs[0].bytes, input_of_everyone(size, rank, 0), {{rank, 0, 0}}});
      }
      break;
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
    case Op::invalid: break;
  }
  return program;
}

} // namespace neuron
