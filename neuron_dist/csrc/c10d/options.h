#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace neuron {

inline constexpr const char* kBackendName = "neuron";

// What `pg_options` of `init_process_group` and `new_group` may set. Copyable, which split_group asks for.
struct Options : c10d::Backend::Options {
  explicit Options(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : c10d::Backend::Options(kBackendName, timeout) {}

  // Empty: as the environment says, or the default.
  std::string topology; // a name, file or inline spec
  std::string algorithm; // a selection string
  std::string reduction; // "schedule" or "exact"
};

} // namespace neuron
