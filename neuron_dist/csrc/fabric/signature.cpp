#include "csrc/fabric/signature.h"

#include <algorithm>
#include <sstream>

#include <c10/core/ScalarType.h>

namespace neuron {

namespace {

bool same_call(const Descriptor& a, const Descriptor& b) {
  return a.op == b.op && a.reduction == b.reduction && a.dtype == b.dtype && a.root == b.root;
}

} // namespace

std::string rank_list(const std::vector<uint64_t>& ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  for (size_t first = 0, last; first < ranks.size(); first = last + 1) {
    for (last = first; last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1;) ++last;
    text << (first > 0 ? ", " : "") << ranks[first];
    if (last > first) text << (last > first + 1 ? "-" : ", ") << ranks[last];
  }
  return text.str();
}

std::string Signatures::mismatch() const {
  if (all_equal_and_even()) return {};
  for (auto find : {&Signatures::invalid_calls, &Signatures::different_calls, &Signatures::different_sizes}) {
    if (auto text = (this->*find)(); !text.empty()) return text;
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

std::string Signatures::invalid_calls() const {
  std::ostringstream text;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (descriptor(rank).op != Op::invalid) continue;
    text << (text.tellp() > 0 ? "; " : "") << name_of(rank) << " made an invalid call: " << descriptor(rank).note;
  }
  return text.str();
}

std::string Signatures::different_calls() const {
  for (int rank = 1; rank < ranks_; ++rank) {
    if (!same_call(descriptor(0), descriptor(rank))) return "the ranks made different calls";
  }
  return {};
}

std::string Signatures::calls() const {
  struct Agreement {
    std::string call;
    std::vector<uint64_t> ranks;
    std::vector<std::string> call_sites; // different ones
  };
  std::vector<Agreement> agreements;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto call = describe(rank);
    auto found = std::find_if(
        agreements.begin(), agreements.end(), [&](const Agreement& agreement) { return agreement.call == call; });
    if (found == agreements.end()) found = agreements.insert(found, {call, {}, {}});
    found->ranks.push_back(global_ranks_[rank]);
    const RankState& state = control_.rank(rank);
    if (state.told.load(std::memory_order_acquire) != call_ || state.call_site[0] == 0) continue;
    auto& known = found->call_sites;
    if (std::find(known.begin(), known.end(), state.call_site) == known.end()) known.emplace_back(state.call_site);
  }
  std::ostringstream text;
  for (const auto& [call, ranks, call_sites] : agreements) {
    text << "\n  " << rank_list(ranks) << ": " << call;
    for (const auto& site : call_sites) text << (&site == &call_sites.front() ? " at " : " or ") << site;
  }
  return text.str();
}

std::string Signatures::different_sizes() const {
  const Descriptor& call = descriptor(0); // the op and root are the same everywhere
  const uint64_t element = c10::elementSize(static_cast<c10::ScalarType>(call.dtype));
  auto elements = [&](uint64_t bytes) { return std::to_string(bytes / element) + " elements"; };

  if (reduces(call.op)) { // every contribution must have one size
    for (int from = 0; from < ranks_; ++from) {
      for (int to = 0; to < ranks_; ++to) {
        if (given(from, to) == given(0, to)) continue;
        return "the ranks gave different sizes to " + describe(0) + ": " + name_of(0) + " " + elements(given(0, to)) +
            ", " + name_of(from) + " " + elements(given(from, to)) +
            (call.op == Op::reduce_scatter ? " for " + name_of(to) : "");
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
      return "the sizes given to " + describe(0) + " do not fit: " + name_of(from) + " gives " +
          elements(given(from, to)) + ", " + name_of(to) + " expects " + elements(expected(to, from)) + " of it";
    }
  }
  return {};
}

std::string Signatures::describe(int rank) const {
  const Descriptor& call = descriptor(rank);
  std::ostringstream text;
  text << (call.op == Op::invalid ? "an invalid call" : name(call.op));
  if (call.op == Op::barrier || call.op == Op::invalid) return text.str();
  text << '(';
  if (call.reduction != Reduction::none) text << name(call.reduction) << ", ";
  if (call.root >= 0) text << "root " << call.root << ", ";
  text << c10::toString(static_cast<c10::ScalarType>(call.dtype));
  const uint64_t element = c10::elementSize(static_cast<c10::ScalarType>(call.dtype));
  if (call.segment_bytes != Descriptor::kUneven) {
    text << '[' << call.segment_bytes / element << ']';
  } else {
    text << ", gives " << sizes(control_.inputs(rank, call_), call.input_count, element) << ", expects "
         << sizes(control_.outputs(rank, call_), call.output_count, element);
  }
  text << ')';
  return text.str();
}

std::string Signatures::sizes(const Range* ranges, uint32_t count, uint64_t element) const {
  std::ostringstream text;
  text << '[';
  for (uint32_t i = 0; i < count; ++i) text << (i > 0 ? ", " : "") << ranges[i].bytes / element;
  text << ']';
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
