#pragma once

#include <functional>
#include <string>

#include "csrc/fabric/control.h"

namespace neuron {

// What a collective's ranks must agree on, from what they posted for one call.
class Signatures {
 public:
  Signatures(const ControlSegment& control, int ranks, uint32_t call) : control_(control), ranks_(ranks), call_(call) {}

  // Empty if all ranks made the same call and their sizes fit; else who called what. `rank_name(r)` names a rank.
  std::string mismatch(const std::function<std::string(int)>& rank_name) const;

 private:
  bool all_equal_and_even() const;
  std::string invalid_calls(const std::function<std::string(int)>& rank_name) const;
  std::string different_calls(const std::function<std::string(int)>& rank_name) const;
  std::string different_sizes(const std::function<std::string(int)>& rank_name) const;
  std::string describe(int rank) const;
  uint64_t given(int from, int to) const; // bytes
  uint64_t expected(int to, int from) const;

  const Descriptor& descriptor(int rank) const { return control_.descriptor(rank, call_); }

  const ControlSegment& control_;
  int ranks_;
  uint32_t call_;
};

} // namespace neuron
