#pragma once

#include <c10/core/Allocator.h>

namespace neuron {

// Host memory that counts as pinned: torch tracks which tensors are, and copies to them may be asked to be
// asynchronous.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* address); // anywhere inside such an allocation

} // namespace neuron
