#include "csrc/fabric/executor.h"

#include <algorithm>
#include <cstring>

#include "csrc/fabric/checks.h"
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

// Evaluates instructions of one arithmetic. Accumulators are a stack of blocks.
class Reducer {
 public:
  explicit Reducer(const Arithmetic& arithmetic)
      : kernels_(kernels(arithmetic.dtype, arithmetic.reduction)),
        element_bytes_(c10::elementSize(arithmetic.dtype)),
        ranks_(arithmetic.ranks),
        round_(arithmetic.round_each_step ? kernels_.round : nullptr) {}

  void run(const Instruction& instruction, const BufferTable& inputs, const BufferTable& outputs) {
    const uint64_t block_bytes = kBlockElements * element_bytes_;
    for (uint64_t done = 0; done < instruction.bytes; done += block_bytes) {
      const uint64_t bytes = std::min(block_bytes, instruction.bytes - done);
      const size_t count = bytes / element_bytes_;
      depth_ = 0;
      if (instruction.order) {
        evaluate(*instruction.order, instruction.sources, inputs, done, count);
      } else {
        fold(instruction.sources, inputs, done, count);
      }
      if (kernels_.divide) kernels_.divide(top(), ranks_, count);
      char* first = outputs.at(instruction.destinations[0]) + done;
      kernels_.store(first, top(), count);
      for (size_t i = 1; i < instruction.destinations.size(); ++i) {
        std::memcpy(outputs.at(instruction.destinations[i]) + done, first, bytes);
      }
    }
  }

 private:
  static constexpr size_t kSlotBytes = kBlockElements * kAccumulatorBytes;

  char* top() { return stack_.data() + (depth_ - 1) * kSlotBytes; }

  void push() {
    if (++depth_ * kSlotBytes > stack_.size()) stack_.resize(depth_ * kSlotBytes);
    if (poison_) std::memset(top(), 0xff, kSlotBytes); // NaN
  }

  void fold(const std::vector<Place>& sources, const BufferTable& inputs, uint64_t offset, size_t count) {
    push();
    if (sources.size() == 1) return kernels_.load(top(), inputs.at(sources[0]) + offset, count);
    kernels_.combine_two(top(), inputs.at(sources[0]) + offset, inputs.at(sources[1]) + offset, count);
    round(count);
    for (size_t i = 2; i < sources.size(); ++i) {
      kernels_.combine(top(), inputs.at(sources[i]) + offset, count);
      round(count);
    }
  }

  // A source that is combined as soon as it is pushed needs no accumulator of its own.
  void evaluate(
      const Order& order, const std::vector<Place>& sources, const BufferTable& inputs, uint64_t offset, size_t count) {
    auto source = [&](size_t word) { return inputs.at(sources[order[word]]) + offset; };
    auto combines = [&](size_t word) { return word < order.size() && order[word] == kCombine; };
    for (size_t word = 0; word < order.size(); ++word) {
      if (order[word] == kCombine) {
        --depth_;
        kernels_.merge(top(), top() + kSlotBytes, count);
        round(count);
      } else if (combines(word + 1)) {
        kernels_.combine(top(), source(word), count);
        round(count);
        ++word;
      } else if (word + 2 < order.size() && order[word + 1] != kCombine && combines(word + 2)) {
        push();
        kernels_.combine_two(top(), source(word), source(word + 1), count);
        round(count);
        word += 2;
      } else {
        push();
        kernels_.load(top(), source(word), count);
      }
    }
  }

  void round(size_t count) {
    if (round_) round_(top(), count);
  }

  const Kernels& kernels_;
  size_t element_bytes_;
  int ranks_;
  bool poison_ = checking();
  void (*round_)(void*, size_t);
  inline static thread_local std::vector<char> stack_; // kept: clearing it would cost more than a small reduction
  size_t depth_ = 0;
};

} // namespace

void execute(
    const Program& program, const BufferTable& inputs, const BufferTable& outputs, const Arithmetic& arithmetic) {
  if (arithmetic.reduction == Reduction::none) {
    for (const auto& instruction : program) copy(instruction, inputs, outputs);
    return;
  }
  Reducer reducer(arithmetic);
  for (const auto& instruction : program) reducer.run(instruction, inputs, outputs);
}

} // namespace neuron
