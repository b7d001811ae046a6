#pragma once

#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e4m3fnuz.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Float8_e5m2fnuz.h>
#include <c10/util/Half.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "csrc/fabric/reduce.h"

namespace neuron {

template <class T>
constexpr bool is_narrow_float = std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16> ||
    std::is_same_v<T, c10::Float8_e4m3fn> || std::is_same_v<T, c10::Float8_e5m2> ||
    std::is_same_v<T, c10::Float8_e4m3fnuz> || std::is_same_v<T, c10::Float8_e5m2fnuz>;

template <class T>
constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <class T>
using Accumulator = std::conditional_t<is_narrow_float<T>, float, T>;

} // namespace neuron
