#pragma once

#include <vector>

#include <torch/csrc/utils/pybind.h>

#include "csrc/c10d/options.h"
#include "csrc/fabric/plan.h"

namespace neuron {

// How a new group gets its planner: the Python function `factory(options, global_ranks, rank)`, which returns None or a
// pair of the planner, `plan(op, bytes, root, peer, faults) -> Plan`, and whether reductions round at each step.
void set_planner_factory(pybind11::object factory);

struct PlannerChoice {
  Planner planner; // may be empty
  bool round_each_step = false;
};

// `rank` is this process's in the group.
PlannerChoice make_planner(
    const c10::intrusive_ptr<Options>& options, const std::vector<uint64_t>& global_ranks, int rank);

void bind_plan(pybind11::module& m);

} // namespace neuron
