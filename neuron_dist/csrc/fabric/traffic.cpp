#include "csrc/fabric/traffic.h"

#include <algorithm>

namespace neuron {

Traffic& Traffic::instance() {
  static auto* traffic = new Traffic(); // never destroyed: groups may outlive this library's statics
  return *traffic;
}

double Traffic::issue(const Plan& plan, double ready) {
  if (plan.links.empty()) return ready;
  std::lock_guard lock(mutex_);
  if (busy_until_.size() <= plan.links.back().link) busy_until_.resize(plan.links.back().link + 1);
  double begin = ready;
  for (const auto& use : plan.links) begin = std::max(begin, busy_until_[use.link]);
  for (const auto& use : plan.links) busy_until_[use.link] = begin + use.seconds;
  return begin;
}

} // namespace neuron
