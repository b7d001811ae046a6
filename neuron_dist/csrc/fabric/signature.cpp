#include "csrc/fabric/signature.h"

#include <sstream>
#include <vector>

#include <c10/core/ScalarType.h>

namespace neuron {

namespace {

bool same_call(const Descriptor& a, const Descriptor& b) {
  return a.op == b.op && a.reduction == b.reduction && a.dtype == b.dtype && a.root == b.root;
}

} // namespace

std::string Signatures::mismatch(const std::function<std::string(int)>& rank_name) const {
  if (all_equal_and_even()) return {};
  for (auto find : {&Signatures::invalid_calls, &Signatures::different_calls, &Signatures::different_sizes}) {
    if (auto text = (this->*find)(rank_name); !text.empty()) return text;
  }
  return {};
}

bool Signatures::all_equal_and_even() const {
  const Descriptor& first = descriptor(0);
  if (first.op == Op::invalid || first.segment_bytes == Descriptor::kUneven) return false;
  for (int rank = 1; rank < ranks_; ++rank) {
    const Descriptor& other = descriptor(rank);
    if (!same_call(first, other) || first.segment_bytes != other.segment_bytes) return false;
  }
  return true;
}

std::string Signatures::invalid_calls(const std::function<std::string(int)>& rank_name) const {
  std::ostringstream text;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (descriptor(rank).op != Op::invalid) continue;
    text << (text.tellp() > 0 ? "; " : "") << rank_name(rank) << " made an invalid call: " << descriptor(rank).note;
  }
  return text.str();
}

std::string Signatures::different_calls(const std::function<std::string(int)>& rank_name) const {
  bool differ = false;
  std::ostringstream text;
  std::vector<bool> told(ranks_);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (told[rank]) continue;
    differ = differ || rank > 0;
    text << (rank > 0 ? "; " : "") << rank_name(rank);
    for (int other = rank + 1; other < ranks_; ++other) {
      if (!same_call(descriptor(rank), descriptor(other))) continue;
      told[other] = true;
      text << ", " << rank_name(other);
    }
    text << ": " << describe(rank);
  }
  return differ ? "the ranks made different calls. " + text.str() : std::string();
}

std::string Signatures::different_sizes(const std::function<std::string(int)>& rank_name) const {
  const Descriptor& call = descriptor(0); // the op and root are the same everywhere
  const uint64_t element = c10::elementSize(static_cast<c10::ScalarType>(call.dtype));
  auto elements = [&](uint64_t bytes) { return std::to_string(bytes / element) + " elements"; };

  if (reduces(call.op)) { // every contribution must have one size
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        if (given(from, to) == given(0, to)) continue;
        return "the ranks gave different sizes to " + describe(0) + ": " + rank_name(0) + " " + elements(given(0, to)) +
            ", " + rank_name(from) + " " + elements(given(from, to)) +
            (call.op == Op::reduce_scatter ? " for " + rank_name(to) : "");
      }
    }
  }
  const bool one_source = call.op == Op::broadcast || call.op == Op::scatter;
  const bool one_target = call.op == Op::gather || call.op == Op::reduce;
  for (int to = 0; to < ranks_; ++to) {
    if (one_target && to != call.root) continue;
    if (call.op == Op::broadcast && to == call.root) continue;
    for (int from = 0; from < ranks_; ++from) {
      if (one_source && from != call.root) continue;
      if (given(from, to) == expected(to, from)) continue;
      return "the sizes given to " + describe(0) + " do not fit: " + rank_name(from) + " gives " +
          elements(given(from, to)) + ", " + rank_name(to) + " expects " + elements(expected(to, from)) + " of it";
    }
  }
  return {};
}

std::string Signatures::describe(int rank) const {
  const Descriptor& call = descriptor(rank);
  std::ostringstream text;
  text << name(call.op);
  if (call.op == Op::barrier) return text.str();
  text << '(';
  if (call.reduction != Reduction::none) text << name(call.reduction) << ", ";
  if (call.root >= 0) text << "root " << call.root << ", ";
  text << c10::toString(static_cast<c10::ScalarType>(call.dtype));
  const uint64_t element = c10::elementSize(static_cast<c10::ScalarType>(call.dtype));
  if (call.segment_bytes != Descriptor::kUneven) text << '[' << call.segment_bytes / element << ']';
  text << ')';
  return text.str();
}

uint64_t Signatures::given(int from, int to) const {
  const Descriptor& call = descriptor(from);
  if (call.input_count == 0) return 0;
  return control_.inputs(from, call_)[call.input_count == 1 ? 0 : to].bytes;
}

uint64_t Signatures::expected(int to, int from) const {
  const Descriptor& call = descriptor(to);
  if (call.output_count == 0) return 0;
  return control_.outputs(to, call_)[call.output_count == 1 ? 0 : from].bytes;
}

} // namespace neuron
