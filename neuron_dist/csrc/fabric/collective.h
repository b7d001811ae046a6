#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

namespace neuron {

enum class Op : uint8_t {
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  gather,
  broadcast,
  scatter,
  all_to_all,
  barrier,
  send_recv, // between two ranks; planned as an op, run by PointToPoint
  invalid, // stands for a call that its rank found wrong before it began
};

enum class Reduction : uint8_t { none, sum, average, product, min, max, bit_and, bit_or, bit_xor };

const char* name(Op op);
const char* name(Reduction reduction);

// Contiguous memory of this process.
struct Buffer {
  char* data = nullptr;
  uint64_t bytes = 0;
};

// One rank's side of a collective. `inputs[d]` is what it gives to rank d, or `inputs[0]` what it gives to everyone;
// `outputs[s]` receives what rank s gives, or `outputs[0]` the reduction over all. Ranks are those of the group.
//
//   op              inputs          outputs
//   all_reduce      1               1
//   reduce          1               1 on the root
//   reduce_scatter  size            1
//   all_gather      1               size
//   gather          1               size on the root
//   broadcast       1 on the root   1 elsewhere
//   scatter         size on root    1
//   all_to_all      size            size
struct Collective {
  Op op = Op::barrier;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  Reduction reduction = Reduction::none;
  int root = -1; // of the rooted ops
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
};

inline bool reduces(Op op) { return op == Op::all_reduce || op == Op::reduce || op == Op::reduce_scatter; }

} // namespace neuron
