#include "csrc/fabric/checks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <vector>

#include <c10/util/Exception.h>

namespace neuron {

namespace {

// Bytes of one rank's buffers that a rank's program reads or writes.
struct Access {
  int rank, segment; // whose
  uint64_t begin, end;
  int by;
};

bool same_buffer(const Access& a, const Access& b) { return a.rank == b.rank && a.segment == b.segment; }
bool overlap(const Access& a, const Access& b) {
  return same_buffer(a, b) && std::max(a.begin, b.begin) < std::min(a.end, b.end);
}

template <class... Text>
void check(bool holds, const Collective& call, const Text&... text) {
  TORCH_CHECK(holds, "NEURON_SIM_CHECK: the program of ", name(call.op), " ", text...);
}

Access access(const Place& place, uint64_t bytes, int by) {
  return {place.rank, place.segment, place.offset, place.offset + bytes, by};
}

bool in_place(Op op) { return op == Op::all_reduce || op == Op::reduce; } // the output may be the input

} // namespace

bool checking() {
  static const bool value = [] {
    const char* text = std::getenv("NEURON_SIM_CHECK");
    return text && std::strcmp(text, "1") == 0;
  }();
  return value;
}

void check_programs(const Collective& call, const std::vector<Program>& programs, bool shared_outputs) {
  const int size = static_cast<int>(programs.size());
  std::vector<Access> writes, reads;
  for (int by = 0; by < size; ++by) {
    for (const Instruction& instruction : programs[by]) {
      for (const Place& place : instruction.sources) reads.push_back(access(place, instruction.bytes, by));
      for (const Place& place : instruction.destinations) writes.push_back(access(place, instruction.bytes, by));
    }
  }
  auto within = [&](const Access& access, const std::vector<Buffer>& buffers, const char* what) {
    check(
        access.rank < size && static_cast<size_t>(access.segment) < buffers.size() &&
            access.end <= buffers[access.segment].bytes,
        call, "on rank ", access.by, " ", what, " bytes ", access.begin, " to ", access.end, " of segment ",
        access.segment, " of rank ", access.rank, ", outside of it");
  };
  for (const Access& read : reads) within(read, call.inputs, "reads");
  for (const Access& write : writes) within(write, call.outputs, "writes");

  std::sort(writes.begin(), writes.end(), [](const Access& a, const Access& b) {
    return std::tie(a.rank, a.segment, a.begin) < std::tie(b.rank, b.segment, b.begin);
  });
  uint64_t written = 0, due = 0;
  for (size_t i = 0; i < writes.size(); ++i) {
    written += writes[i].end - writes[i].begin;
    check(
        i == 0 || !overlap(writes[i - 1], writes[i]), call, "writes byte ", writes[i].begin, " of segment ",
        writes[i].segment, " of rank ", writes[i].rank, " twice, on ranks ", i ? writes[i - 1].by : 0, " and ",
        writes[i].by);
  }
  for (const Buffer& output : call.outputs) due += output.bytes * size;
  check(written == due, call, "writes ", written, " of ", due, " bytes of output");
  if (!in_place(call.op) || !shared_outputs) return; // else peers read copies of the inputs
  for (const Access& read : reads) {
    // The last write that begins before the read ends: writes are disjoint, so no other can reach into it but those
    // between.
    auto next = std::lower_bound(writes.begin(), writes.end(), read, [](const Access& write, const Access& read) {
      return std::tie(write.rank, write.segment, write.begin) < std::tie(read.rank, read.segment, read.end);
    });
    while (next != writes.begin() && overlap(*--next, read)) {
      check(
          next->by == read.by, call, "on rank ", read.by, " reads byte ", std::max(read.begin, next->begin),
          " of rank ", read.rank, ", which rank ", next->by, " writes");
    }
  }
}

void check_overlaps(const Collective& call, int rank) {
  for (size_t o = 0; o < call.outputs.size(); ++o) {
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Buffer& output = call.outputs[o];
      const Buffer& input = call.inputs[i];
      const bool apart = output.bytes == 0 || input.bytes == 0 || output.data + output.bytes <= input.data ||
          input.data + input.bytes <= output.data;
      const bool own_input = i == (call.inputs.size() == 1 ? 0 : static_cast<size_t>(rank));
      const bool own_output = o == (call.outputs.size() == 1 ? 0 : static_cast<size_t>(rank));
      const bool same = output.data == input.data && output.bytes == input.bytes && own_input && own_output;
      TORCH_CHECK_VALUE(
          apart || same, name(call.op), ": output ", o, " of this rank overlaps its input ", i,
          ", which other ranks may read while it is written; give it memory of its own");
    }
  }
}

} // namespace neuron
