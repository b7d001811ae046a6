#pragma once

#include <string>
#include <vector>

#include "csrc/fabric/control.h"

namespace neuron {

// "rank 3" or "ranks 0, 2-5": ascending ranks in words.
std::string rank_list(const std::vector<uint64_t>& ranks);

// What a collective's ranks must agree on, from what they posted for one call.
class Signatures {
 public:
  // `global_ranks` name the group's ranks in messages.
  Signatures(const ControlSegment& control, const std::vector<uint64_t>& global_ranks, uint32_t call)
      : control_(control), global_ranks_(global_ranks), ranks_(static_cast<int>(global_ranks.size())), call_(call) {}

  // Empty if all ranks made the same call and their sizes fit; else what is wrong, in one line.
  std::string mismatch() const;
  // Who made which call and where: a line for each set of ranks that agree.
  std::string calls() const;
  // One rank's: "all_reduce(SUM, Float[4])".
  std::string describe(int rank) const;

 private:
  bool all_equal_and_even() const;
  std::string invalid_calls() const;
  std::string different_calls() const;
  std::string different_sizes() const;
  std::string sizes(const Range* ranges, uint32_t count, uint64_t element) const;
  uint64_t given(int from, int to) const; // bytes
  uint64_t expected(int to, int from) const;

  const Descriptor& descriptor(int rank) const { return control_.descriptor(rank, call_); }
  std::string name_of(int rank) const { return "rank " + std::to_string(global_ranks_[rank]); }

  const ControlSegment& control_;
  const std::vector<uint64_t>& global_ranks_;
  int ranks_;
  uint32_t call_;
};

} // namespace neuron
