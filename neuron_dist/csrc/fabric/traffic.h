#pragma once

#include <mutex>
#include <vector>

#include "csrc/fabric/plan.h"

namespace neuron {

// Until when this rank's operations, of whatever groups, keep the fabric's links busy, in simulated time. A link serves
// them in the order of issue: an operation begins when the traffic issued before is through on all of its links, and
// puts its own on them from then on. Known of each is the earliest that it can begin by what this rank knows itself;
// its peers may hold it up, but when they tell depends on the host.
class Traffic {
 public:
  static Traffic& instance();

  // Issues an operation that may begin at `ready`, and returns when its links let it. Calls come in program order.
  double issue(const Plan& plan, double ready);

 private:
  std::mutex mutex_;
  std::vector<double> busy_until_; // by link
};

} // namespace neuron
