// The arithmetic of reductions, compiled once per instruction set. The including file includes reduce_types.h, then
// sets its target and NEURON_ISA: in this order, so that no shared inline function is compiled for a CPU that this is
// not.

namespace neuron {
namespace NEURON_ISA {
namespace {

// Widening and narrowing of a block. bfloat16 and half have forms that the compiler vectorises.
template <class T>
void widen(float* __restrict to, const T* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

template <class T>
void narrow(T* __restrict to, const float* __restrict from, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

template <>
void widen(float* __restrict to, const c10::BFloat16* __restrict from, size_t count) {
  auto* bits = reinterpret_cast<uint32_t*>(to);
  const auto* source = reinterpret_cast<const uint16_t*>(from);
  for (size_t i = 0; i < count; ++i) bits[i] = static_cast<uint32_t>(source[i]) << 16;
}

template <>
void narrow(c10::BFloat16* __restrict to, const float* __restrict from, size_t count) {
  const auto* bits = reinterpret_cast<const uint32_t*>(from);
  auto* target = reinterpret_cast<uint16_t*>(to);
  for (size_t i = 0; i < count; ++i) { // round to nearest even; a NaN becomes the quiet one that torch writes
    const uint32_t rounded = (bits[i] + 0x7FFF + ((bits[i] >> 16) & 1)) >> 16;
    target[i] = static_cast<uint16_t>((bits[i] & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded);
  }
}

#ifdef NEURON_HAS_F16C
template <>
void widen(float* __restrict to, const c10::Half* __restrict from, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(packed));
  }
  for (; i < count; ++i) to[i] = static_cast<float>(from[i]);
}

template <>
void narrow(c10::Half* __restrict to, const float* __restrict from, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i packed = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), packed);
  }
  for (; i < count; ++i) to[i] = static_cast<c10::Half>(from[i]);
}
#endif

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a || b;
    } else {
      return static_cast<T>(a + b);
    }
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>) {
      return a && b;
    } else {
      return static_cast<T>(a * b);
    }
  }
};

struct Min { // a NaN wins, as in torch.minimum
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return (a < b || a != a) ? a : b;
    } else {
      return b < a ? b : a;
    }
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>) {
      return (a > b || a != a) ? a : b;
    } else {
      return a < b ? b : a;
    }
  }
};

struct And {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};

struct Or {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};

struct Xor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// Integer sums and products wrap, as in torch; done unsigned, where that is defined.
template <class T>
auto arithmetic(T* values) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return reinterpret_cast<std::make_unsigned_t<T>*>(values);
  } else {
    return values;
  }
}

template <class Operation>
constexpr bool wraps = std::is_same_v<Operation, Sum> || std::is_same_v<Operation, Product>;

template <class Operation, class T>
void apply(T* to, const T* a, const T* b, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = Operation{}(a[i], b[i]);
}

template <class Operation, class T>
void apply_wrapping(T* to, const T* a, const T* b, size_t count) {
  if constexpr (wraps<Operation>) {
    apply<Operation>(arithmetic(to), arithmetic(const_cast<T*>(a)), arithmetic(const_cast<T*>(b)), count);
  } else {
    apply<Operation>(to, a, b, count);
  }
}

template <class T, class Operation>
struct Block {
  using A = Accumulator<T>;

  static void load(void* accumulator, const void* source, size_t count) {
    if constexpr (is_narrow_float<T>) {
      widen(static_cast<float*>(accumulator), static_cast<const T*>(source), count);
    } else {
      std::memcpy(accumulator, source, count * sizeof(T));
    }
  }

  static void combine(void* accumulator, const void* source, size_t count) {
    auto* to = static_cast<A*>(accumulator);
    if constexpr (is_narrow_float<T>) {
      alignas(64) float wide[kBlockElements];
      widen(wide, static_cast<const T*>(source), count);
      apply<Operation>(to, to, static_cast<const float*>(wide), count);
    } else {
      apply_wrapping<Operation>(to, static_cast<const A*>(to), static_cast<const T*>(source), count);
    }
  }

  static void combine_two(void* accumulator, const void* first, const void* second, size_t count) {
    if constexpr (is_narrow_float<T>) {
      load(accumulator, first, count);
      combine(accumulator, second, count);
    } else {
      apply_wrapping<Operation>(
          static_cast<A*>(accumulator), static_cast<const T*>(first), static_cast<const T*>(second), count);
    }
  }

  static void merge(void* accumulator, const void* other, size_t count) {
    auto* to = static_cast<A*>(accumulator);
    apply_wrapping<Operation>(to, static_cast<const A*>(to), static_cast<const A*>(other), count);
  }

  static void round(void* accumulator, size_t count) {
    if constexpr (is_narrow_float<T>) {
      alignas(64) T rounded[kBlockElements];
      narrow(rounded, static_cast<const float*>(accumulator), count);
      widen(static_cast<float*>(accumulator), static_cast<const T*>(rounded), count);
    }
  }

  static void divide(void* accumulator, int64_t divisor, size_t count) {
    if constexpr (std::is_floating_point_v<A> || is_complex<A>) {
      auto* values = static_cast<A*>(accumulator);
      const A by = static_cast<A>(static_cast<double>(divisor));
      for (size_t i = 0; i < count; ++i) values[i] /= by;
    }
  }

  static void store(void* destination, const void* accumulator, size_t count) {
    if constexpr (is_narrow_float<T>) {
      narrow(static_cast<T*>(destination), static_cast<const float*>(accumulator), count);
    } else {
      std::memcpy(destination, accumulator, count * sizeof(T));
    }
  }
};

template <class T, class Operation, bool average = false>
const Kernels* table() {
  using B = Block<T, Operation>;
  static constexpr Kernels kTable{
      &B::load,
      &B::combine,
      &B::combine_two,
      &B::merge,
      is_narrow_float<T> ? &B::round : nullptr,
      average ? &B::divide : nullptr,
      &B::store};
  return &kTable;
}

template <class T>
const Kernels* for_reduction(Reduction reduction) {
  constexpr bool is_float = std::is_floating_point_v<Accumulator<T>>;
  switch (reduction) {
    case Reduction::sum: return table<T, Sum>();
    case Reduction::product: return table<T, Product>();
    case Reduction::average:
      if constexpr (is_float || is_complex<T>) return table<T, Sum, true>();
      return nullptr;
    case Reduction::min:
      if constexpr (!is_complex<T>) return table<T, Min>();
      return nullptr;
    case Reduction::max:
      if constexpr (!is_complex<T>) return table<T, Max>();
      return nullptr;
    case Reduction::bit_and:
      if constexpr (std::is_integral_v<T>) return table<T, And>();
      return nullptr;
    case Reduction::bit_or:
      if constexpr (std::is_integral_v<T>) return table<T, Or>();
      return nullptr;
    case Reduction::bit_xor:
      if constexpr (std::is_integral_v<T>) return table<T, Xor>();
      return nullptr;
    case Reduction::none: return nullptr;
  }
  return nullptr;
}

const Kernels* for_dtype(c10::ScalarType dtype, Reduction reduction) {
  using c10::ScalarType;
  switch (dtype) {
    case ScalarType::Float: return for_reduction<float>(reduction);
    case ScalarType::Double: return for_reduction<double>(reduction);
    case ScalarType::Half: return for_reduction<c10::Half>(reduction);
    case ScalarType::BFloat16: return for_reduction<c10::BFloat16>(reduction);
    case ScalarType::Float8_e4m3fn: return for_reduction<c10::Float8_e4m3fn>(reduction);
    case ScalarType::Float8_e5m2: return for_reduction<c10::Float8_e5m2>(reduction);
    case ScalarType::Float8_e4m3fnuz: return for_reduction<c10::Float8_e4m3fnuz>(reduction);
    case ScalarType::Float8_e5m2fnuz: return for_reduction<c10::Float8_e5m2fnuz>(reduction);
    case ScalarType::Bool: return for_reduction<bool>(reduction);
    case ScalarType::Byte: return for_reduction<uint8_t>(reduction);
    case ScalarType::Char: return for_reduction<int8_t>(reduction);
    case ScalarType::Short: return for_reduction<int16_t>(reduction);
    case ScalarType::Int: return for_reduction<int32_t>(reduction);
    case ScalarType::Long: return for_reduction<int64_t>(reduction);
    case ScalarType::UInt16: return for_reduction<uint16_t>(reduction);
    case ScalarType::UInt32: return for_reduction<uint32_t>(reduction);
    case ScalarType::UInt64: return for_reduction<uint64_t>(reduction);
    case ScalarType::ComplexFloat: return for_reduction<std::complex<float>>(reduction);
    case ScalarType::ComplexDouble: return for_reduction<std::complex<double>>(reduction);
    default: return nullptr;
  }
}

} // namespace

const Kernels* kernels(c10::ScalarType dtype, Reduction reduction) { return for_dtype(dtype, reduction); }

} // namespace NEURON_ISA
} // namespace neuron
