#include "csrc/fabric/executor.h"

#include <algorithm>
#include <cstring>

#include "csrc/fabric/reduce.h"

namespace neuron {

namespace {

void copy(const Instruction& instruction, const BufferTable& inputs, const BufferTable& outputs) {
  const char* source = inputs.at(instruction.sources[0]);
  for (const Place& place : instruction.destinations) {
    char* destination = outputs.at(place);
    if (destination != source) std::memmove(destination, source, instruction.bytes);
  }
}

void reduce(
    const Instruction& instruction, const BufferTable& inputs, const BufferTable& outputs, const Kernels& kernels,
    size_t element_bytes, int ranks) {
  alignas(64) char accumulator[kBlockElements * kAccumulatorBytes];
  const auto& sources = instruction.sources;
  const uint64_t block_bytes = kBlockElements * element_bytes;
  for (uint64_t done = 0; done < instruction.bytes; done += block_bytes) {
    const uint64_t bytes = std::min(block_bytes, instruction.bytes - done);
    const size_t count = bytes / element_bytes;
    if (sources.size() == 1) {
      kernels.load(accumulator, inputs.at(sources[0]) + done, count);
    } else {
      kernels.combine_two(accumulator, inputs.at(sources[0]) + done, inputs.at(sources[1]) + done, count);
    }
    for (size_t i = 2; i < sources.size(); ++i) kernels.combine(accumulator, inputs.at(sources[i]) + done, count);
    if (kernels.divide) kernels.divide(accumulator, ranks, count);
    char* first = outputs.at(instruction.destinations[0]) + done;
    kernels.store(first, accumulator, count);
    for (size_t i = 1; i < instruction.destinations.size(); ++i) {
      std::memcpy(outputs.at(instruction.destinations[i]) + done, first, bytes);
    }
  }
}

} // namespace

void execute(
    const Program& program, const BufferTable& inputs, const BufferTable& outputs, c10::ScalarType dtype,
    Reduction reduction, int ranks) {
  if (reduction == Reduction::none) {
    for (const auto& instruction : program) copy(instruction, inputs, outputs);
    return;
  }
  const Kernels& table = kernels(dtype, reduction);
  for (const auto& instruction : program) {
    reduce(instruction, inputs, outputs, table, c10::elementSize(dtype), ranks);
  }
}

} // namespace neuron
