#pragma once

#include <cstddef>
#include <cstdint>

#include <c10/core/ScalarType.h>

#include "csrc/fabric/collective.h"

namespace neuron {

// Elements that one block holds: its accumulators stay in the L1 cache.
constexpr size_t kBlockElements = 2048;
constexpr size_t kAccumulatorBytes = 16; // of the widest, complex128

// How blocks of one dtype and reduction are computed. Accumulators are float for the 16-bit and 8-bit floats, else the
// dtype itself. `count` is at most kBlockElements.
struct Kernels {
  void (*load)(void* accumulator, const void* source, size_t count);
  void (*combine)(void* accumulator, const void* source, size_t count);
  void (*combine_two)(void* accumulator, const void* first, const void* second, size_t count); // load, then combine
  void (*merge)(void* accumulator, const void* other, size_t count); // of two accumulators
  void (*round)(void* accumulator, size_t count); // to the dtype and back; null where they are the same
  void (*divide)(void* accumulator, int64_t divisor, size_t count); // null unless the reduction is an average
  void (*store)(void* destination, const void* accumulator, size_t count);
};

// Throws TypeError if the dtype has no such arithmetic (bitwise on floats, order on complex, average of integers).
const Kernels& kernels(c10::ScalarType dtype, Reduction reduction);

} // namespace neuron
