#include "csrc/fabric/reduce_types.h"

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,prefer-vector-width=512")
#define NEURON_HAS_F16C
#define NEURON_ISA avx512
#include "csrc/fabric/reduce_kernels.h"
#pragma GCC pop_options
#endif
