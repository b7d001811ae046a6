#include "csrc/fabric/reduce.h"

#include <c10/util/Exception.h>

#include "csrc/fabric/reduce_types.h"

#define NEURON_ISA baseline
#include "csrc/fabric/reduce_kernels.h"

namespace neuron {

#if defined(__x86_64__)
namespace avx2 {
const Kernels* kernels(c10::ScalarType dtype, Reduction reduction);
}
namespace avx512 {
const Kernels* kernels(c10::ScalarType dtype, Reduction reduction);
}
#endif

namespace {

using Lookup = const Kernels* (*)(c10::ScalarType, Reduction);

Lookup best_for_this_cpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    return &avx512::kernels;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma")) {
    return &avx2::kernels;
  }
#endif
  return &baseline::kernels;
}

} // namespace

const Kernels& kernels(c10::ScalarType dtype, Reduction reduction) {
  static const Lookup lookup = best_for_this_cpu();
  const Kernels* found = lookup(dtype, reduction);
  TORCH_CHECK_TYPE(
      found, "reduction ", name(reduction), " is not defined for ", c10::toString(dtype),
      reduction == Reduction::average ? "; use SUM and divide" : "");
  return *found;
}

} // namespace neuron
