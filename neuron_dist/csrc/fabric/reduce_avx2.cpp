#include "csrc/fabric/reduce_types.h"

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#define NEURON_HAS_F16C
#define NEURON_ISA avx2
#include "csrc/fabric/reduce_kernels.h"
#pragma GCC pop_options
#endif
