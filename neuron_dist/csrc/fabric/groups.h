#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace neuron {

class Communicator;

// The groups of this process that it has not left.
void add_group(Communicator& group);
void remove_group(Communicator& group);
void for_each_group(const std::function<void(Communicator&)>& visit); // none is left meanwhile

// "rank 2 (pid 7) was killed by SIGKILL" if one of these global ranks is known, by any group, to be dead; else empty.
std::string death_among(const std::vector<uint64_t>& global_ranks);

} // namespace neuron
