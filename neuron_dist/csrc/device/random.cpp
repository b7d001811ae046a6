// Random operators that draw from the device's generator: element i of a tensor depends on (seed, offset + i) alone.
// torch's templates check the arguments, its distributions turn words into samples; only the source of words is ours.
#include <array>

#include <ATen/Dispatch.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/core/DistributionsHelper.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <ATen/native/DistributionTemplates.h>
#include <torch/library.h>

#include "csrc/device/generator.h"
#include "csrc/device/process.h"

namespace neuron {

namespace {

using at::Tensor;
using MaybeGenerator = std::optional<at::Generator>;

// The random words of one element after another. Four neighbours share Philox blocks: the k-th word of element e is
// word e mod 4 of the block with counter e / 4 and subsequence k.
class Words {
 public:
  explicit Words(uint64_t seed) : seed_(seed) {}

  void start(uint64_t element) {
    if (element / 4 != group_) ready_ = 0;
    group_ = element / 4;
    lane_ = element % 4;
    drawn_ = 0;
  }

  uint32_t random() {
    if (drawn_ == ready_) {
      TORCH_INTERNAL_ASSERT(ready_ < blocks_.size());
      at::Philox4_32 philox(seed_, /*subsequence=*/ready_, /*offset=*/group_);
      for (uint32_t& word : blocks_[ready_]) word = philox();
      ++ready_;
    }
    return blocks_[drawn_++][lane_];
  }

  uint64_t random64() {
    const uint64_t low = random();
    return low | uint64_t{random()} << 32;
  }

 private:
  const uint64_t seed_;
  uint64_t group_ = ~uint64_t{0};
  size_t lane_ = 0;
  size_t drawn_ = 0;
  size_t ready_ = 0;
  std::array<std::array<uint32_t, 4>, 4> blocks_{}; // no distribution takes more words than a pair of doubles
};

// Calls sample(words, i) for every element in row-major order and stores what it returns.
template <class scalar_t, class Sample>
void fill(const at::TensorBase& self, const MaybeGenerator& maybe_generator, Sample sample) {
  check_not_forked();
  NeuronGenerator* generator = generator_or_default(maybe_generator, self.device().index());
  const int64_t count = self.numel();
  uint64_t seed = 0;
  uint64_t offset = 0;
  {
    std::lock_guard<std::mutex> lock(generator->mutex_);
    seed = generator->current_seed();
    offset = generator->advance(static_cast<uint64_t>(count));
  }
  const Tensor destination(self);
  const Tensor dense = destination.contiguous();
  auto* data = dense.mutable_data_ptr<scalar_t>();
  at::parallel_for(0, count, /*grain_size=*/16384, [&](int64_t begin, int64_t end) {
    Words words(seed);
    for (int64_t i = begin; i < end; ++i) {
      words.start(offset + static_cast<uint64_t>(i));
      data[i] = static_cast<scalar_t>(sample(&words, i));
    }
  });
  if (!dense.is_same(destination)) destination.copy_(dense);
}

template <class>
struct Uniform {
  void operator()(at::TensorIteratorBase& iter, double from, double to, const MaybeGenerator& generator) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "uniform_", [&] {
      using opmath_t = at::opmath_type<scalar_t>;
      at::uniform_real_distribution<opmath_t> uniform(static_cast<opmath_t>(from), static_cast<opmath_t>(to));
      const auto low = static_cast<scalar_t>(from);
      const auto high = static_cast<scalar_t>(to);
      fill<scalar_t>(iter.tensor_base(0), generator, [&](Words* words, int64_t) {
        const auto value = static_cast<scalar_t>(uniform(words));
        return value == high ? low : value; // the cast may round up to the excluded bound
      });
    });
  }
};

template <class>
struct Normal {
  void operator()(const Tensor& self, double mean, double std, const MaybeGenerator& generator) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "normal_", [&] {
      using opmath_t = at::opmath_type<scalar_t>;
      at::normal_distribution<opmath_t> normal(static_cast<opmath_t>(mean), static_cast<opmath_t>(std));
      fill<scalar_t>(self, generator, [&](Words* words, int64_t) { return normal(words); });
    });
  }
};

// Of the distributions that are sampled in double whatever the tensor's type.
template <class Distribution>
void fill_floating(const at::TensorBase& self, const MaybeGenerator& generator, Distribution distribution) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, self.scalar_type(), "random", [&] {
    fill<scalar_t>(self, generator, [&](Words* words, int64_t) { return distribution(words); });
  });
}

template <class>
struct LogNormal {
  void operator()(at::TensorIteratorBase& iter, double mean, double std, const MaybeGenerator& generator) {
    fill_floating(iter.tensor_base(0), generator, at::lognormal_distribution<double>(mean, std));
  }
};

template <class>
struct Cauchy {
  void operator()(at::TensorIteratorBase& iter, double median, double sigma, const MaybeGenerator& generator) {
    fill_floating(iter.tensor_base(0), generator, at::cauchy_distribution<double>(median, sigma));
  }
};

template <class>
struct Exponential {
  void operator()(at::TensorIteratorBase& iter, double lambda, const MaybeGenerator& generator) {
    TORCH_CHECK(
        at::isFloatingType(iter.dtype()),
        "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you "
        "specified ",
        iter.dtype());
    fill_floating(iter.tensor_base(0), generator, at::exponential_distribution<double>(lambda));
  }
};

template <class>
struct Geometric {
  void operator()(at::TensorIteratorBase& iter, double p, const MaybeGenerator& generator) {
    AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "geometric_", [&] {
      at::geometric_distribution<double> geometric(p);
      fill<scalar_t>(iter.tensor_base(0), generator, [&](Words* words, int64_t) { return geometric(words); });
    });
  }
};

template <class>
struct RandomInteger {
  void operator()(at::TensorIteratorBase& iter, const MaybeGenerator& generator) {
    AT_DISPATCH_V2(
        iter.dtype(), "random_", AT_WRAP([&] {
          at::uniform_int_distribution<scalar_t> integer;
          fill<scalar_t>(iter.tensor_base(0), generator, [&](Words* words, int64_t) { return integer(words); });
        }),
        at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_ALL_TYPES));
  }
};

template <class>
struct RandomFromTo {
  void operator()(at::TensorIteratorBase& iter, uint64_t range, int64_t base, const MaybeGenerator& generator) {
    AT_DISPATCH_V2(
        iter.dtype(), "random_from_to", AT_WRAP([&] {
          at::uniform_int_from_to_distribution<scalar_t> integer(range, base);
          fill<scalar_t>(iter.tensor_base(0), generator, [&](Words* words, int64_t) { return integer(words); });
        }),
        at::kBool, at::kHalf, at::kBFloat16, AT_EXPAND(AT_ALL_TYPES), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES));
  }
  // All 2^64 integers.
  void operator()(at::TensorIteratorBase& iter, const MaybeGenerator& generator) {
    AT_DISPATCH_V2(
        iter.dtype(), "random_from_to", AT_WRAP([&] {
          at::uniform_int_full_range_distribution<scalar_t> integer;
          fill<scalar_t>(iter.tensor_base(0), generator, [&](Words* words, int64_t) { return integer(words); });
        }),
        at::kLong, at::kDouble, at::kFloat, at::kBFloat16);
  }
};

template <class>
struct Bernoulli {
  void operator()(const Tensor& self, double p, const MaybeGenerator& generator) {
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli_", [&] {
      at::bernoulli_distribution<float> bernoulli(static_cast<float>(p));
      fill<scalar_t>(self, generator, [&](Words* words, int64_t) { return bernoulli(words); });
    });
  }
  void operator()(const Tensor& self, const Tensor& p, const MaybeGenerator& generator) {
    const Tensor chances = p.to(self.options().dtype(at::kFloat)).expand(self.sizes()).contiguous();
    const auto* chance = chances.const_data_ptr<float>();
    AT_DISPATCH_ALL_TYPES_AND3(at::kBool, at::kBFloat16, at::kHalf, self.scalar_type(), "bernoulli_", [&] {
      fill<scalar_t>(self, generator, [&](Words* words, int64_t i) {
        return at::bernoulli_distribution<float>(chance[i])(words);
      });
    });
  }
};

namespace templates = at::native::templates;
using Source = NeuronGenerator; // what the templates pass on to kernels; ours take it from the generator argument

Tensor& uniform_(Tensor& self, double from, double to, MaybeGenerator generator) {
  return templates::uniform_impl_<Uniform, Source>(self, from, to, std::move(generator));
}
Tensor& normal_(Tensor& self, double mean, double std, MaybeGenerator generator) {
  return templates::normal_impl_<Normal, Source>(self, mean, std, std::move(generator));
}
template <class Mean, class Std>
Tensor normal(Mean mean, Std std, MaybeGenerator generator) {
  return templates::normal_impl<Normal, Source>(mean, std, std::move(generator));
}
template <class Mean, class Std>
Tensor& normal_out(Mean mean, Std std, MaybeGenerator generator, Tensor& out) {
  return templates::normal_out_impl<Normal, Source>(out, mean, std, std::move(generator));
}
Tensor& log_normal_(Tensor& self, double mean, double std, MaybeGenerator generator) {
  return templates::log_normal_impl_<LogNormal, Source>(self, mean, std, std::move(generator));
}
Tensor& cauchy_(Tensor& self, double median, double sigma, MaybeGenerator generator) {
  return templates::cauchy_impl_<Cauchy, Source>(self, median, sigma, std::move(generator));
}
Tensor& exponential_(Tensor& self, double lambda, MaybeGenerator generator) {
  return templates::exponential_impl_<Exponential, Source>(self, lambda, std::move(generator));
}
Tensor& geometric_(Tensor& self, double p, MaybeGenerator generator) {
  return templates::geometric_impl_<Geometric, Source>(self, p, std::move(generator));
}
Tensor& random_(Tensor& self, MaybeGenerator generator) {
  return templates::random_impl<RandomInteger, Source>(self, std::move(generator));
}
Tensor& random_from(Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
  return templates::random_from_to_impl<RandomFromTo, Source>(self, from, to, std::move(generator));
}
Tensor& random_to(Tensor& self, int64_t to, MaybeGenerator generator) {
  return random_from(self, 0, to, std::move(generator));
}
Tensor& bernoulli_scalar(Tensor& self, double p, MaybeGenerator generator) {
  return templates::bernoulli_impl_<Bernoulli, Source>(self, p, std::move(generator));
}
Tensor& bernoulli_tensor(Tensor& self, const Tensor& p, MaybeGenerator generator) {
  return templates::bernoulli_impl_<Bernoulli, Source>(self, p, std::move(generator));
}
Tensor& bernoulli_out(const Tensor& self, MaybeGenerator generator, Tensor& out) {
  return templates::bernoulli_out_impl<Bernoulli, Source>(out, self, std::move(generator));
}

// torch's CPU kernel draws from the CPU's generator, whatever is passed.
std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  if (input.numel() == 0 || !train.value_or(true) || p == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool)).bernoulli_(1 - p);
  const double scale = p == 1 ? 0 : 1 / (1 - p);
  return {input.mul(mask).mul_(scale), mask};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("uniform_", &uniform_);
  m.impl("normal_", &normal_);
  m.impl("normal.Tensor_float", &normal<const Tensor&, double>);
  m.impl("normal.float_Tensor", &normal<double, const Tensor&>);
  m.impl("normal.Tensor_Tensor", &normal<const Tensor&, const Tensor&>);
  m.impl("normal.Tensor_float_out", &normal_out<const Tensor&, double>);
  m.impl("normal.float_Tensor_out", &normal_out<double, const Tensor&>);
  m.impl("normal.Tensor_Tensor_out", &normal_out<const Tensor&, const Tensor&>);
  m.impl("log_normal_", &log_normal_);
  m.impl("cauchy_", &cauchy_);
  m.impl("exponential_", &exponential_);
  m.impl("geometric_", &geometric_);
  m.impl("random_", &random_);
  m.impl("random_.from", &random_from);
  m.impl("random_.to", &random_to);
  m.impl("bernoulli_.float", &bernoulli_scalar);
  m.impl("bernoulli_.Tensor", &bernoulli_tensor);
  m.impl("bernoulli.out", &bernoulli_out);
  m.impl("native_dropout", &native_dropout);
}

} // namespace

} // namespace neuron
