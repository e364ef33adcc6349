// Every reduction with every set of instructions this processor has, against plain scalars.
#include "collectives/reduce/partial_reducer.hpp"
#include "collectives/reduce/reduce.hpp"
#include "tests/support/scalar_fold.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::testing;

namespace {

constexpr std::size_t ranks_max = 9;
/// More than two tiles of the widest vectors of the narrowest element.
constexpr std::size_t elements = 600;
/// Room for misalignment, and bytes that must stay as they are.
constexpr std::size_t margin = 128;
constexpr std::byte untouched{0xa5};

std::vector<Instructions> instruction_sets() {
  std::vector<Instructions> sets{Instructions::baseline};
  for (const auto set : {Instructions::avx2, Instructions::avx512}) {
    if (set <= best_instructions()) sets.push_back(set);
  }
  return sets;
}

const std::vector<ReduceOp> ops = {ReduceOp::sum,  ReduceOp::product, ReduceOp::min,
                                   ReduceOp::max,  ReduceOp::mean,    ReduceOp::band,
                                   ReduceOp::bor,  ReduceOp::bxor,    ReduceOp::premul_sum,
                                   ReduceOp::land, ReduceOp::lor,     ReduceOp::lxor};

Reduction reduction_by(ReduceOp op) {
  return op == ReduceOp::premul_sum ? Reduction::premul_sum(1.0 / 3) : Reduction(op);
}

template <class T>
bool is_nan(T x) {
  if constexpr (is_complex<T>) {
    return std::isnan(x.real()) || std::isnan(x.imag());
  } else if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return std::isnan(static_cast<Wide<T>>(x));
  }
}

/// Any bits, and often small numbers, so that sums round and stay finite.
template <class T>
T any_value(std::mt19937_64& random) {
  const std::uint64_t bits = random();
  if constexpr (std::is_same_v<T, bool>) {
    return bits % 2 != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return random() % 4 == 0 ? T() : static_cast<T>(bits);
  } else if constexpr (is_complex<T>) {
    using Real = typename T::value_type;
    return {any_value<Real>(random), any_value<Real>(random)};
  } else {
    T value;
    if (random() % 4 == 0) {
      std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
      // A compiler may make a signalling NaN quiet, or not.
      if constexpr (std::is_floating_point_v<T>) value += 0;
    } else {
      value = static_cast<T>(static_cast<float>(static_cast<std::int64_t>(bits) >> 32) * 0x1p-20f);
    }
    return value;
  }
}

/// Sums of several NaN may show any of them.
template <class T>
bool same(const Reduction& reduction, const std::byte* got, T wanted) {
  if (std::memcmp(got, &wanted, sizeof(T)) == 0) return true;
  const ReduceOp op = reduction.op();
  if (op == ReduceOp::min || op == ReduceOp::max || !is_nan(wanted)) return false;
  T value;
  std::memcpy(&value, got, sizeof value);
  if constexpr (is_complex<T>) {
    const auto part = [](auto a, auto b) {
      return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
    };
    return part(value.real(), wanted.real()) && part(value.imag(), wanted.imag());
  }
  return is_nan(value);
}

/// The ranks' values of one type, where tests want them in memory.
template <class T>
class Ranks {
 public:
  Ranks() {
    std::mt19937_64 random(7);
    for (auto& values : values_) {
      for (std::size_t i = 0; i < elements; ++i) values.push_back(any_value<T>(random));
    }
  }
  std::vector<T> wanted(const Reduction& reduction, std::size_t ranks) const {
    std::vector<T> all;
    for (std::size_t i = 0; i < elements; ++i) {
      std::vector<T> column;
      for (std::size_t rank = 0; rank < ranks; ++rank) column.push_back(values_[rank][i]);
      all.push_back(scalar_fold<T>(reduction, column));
    }
    return all;
  }
  void place(std::size_t rank, std::byte* at) const {
    for (std::size_t i = 0; i < elements; ++i) {
      const T value = values_[rank][i];
      std::memcpy(at + i * sizeof(T), &value, sizeof value);
    }
  }

 private:
  std::array<std::vector<T>, ranks_max> values_;
};

struct Buffer {
  explicit Buffer(std::size_t shift) : bytes(elements * 16 + 2 * margin, untouched), skip(shift) {}
  /// Aligned for everything, save for the shift.
  std::byte* begin() {
    const auto at = reinterpret_cast<std::uintptr_t>(bytes.data());
    return bytes.data() + (64 - at % 64) % 64 + skip;
  }
  std::vector<std::byte> bytes;
  std::size_t skip;
};

template <class T>
bool holds(const Reduction& reduction, Buffer& buffer, const std::vector<T>& wanted,
           std::size_t count) {
  const std::byte* at = buffer.begin();
  for (std::size_t i = 0; i < count; ++i) {
    if (!same(reduction, at + i * sizeof(T), wanted[i])) return false;
  }
  return at[count * sizeof(T)] == untouched && (buffer.skip == 0 || at[-1] == untouched);
}

template <class T>
class Check {
 public:
  Check() {
    for (std::size_t rank = 0; rank < ranks_max; ++rank) {
      inputs_.emplace_back(shift_of(rank));
      ranks_.place(rank, inputs_.back().begin());
      places_.push_back(inputs_.back().begin());
    }
  }

  void all() {
    for (const ReduceOp op : ops) {
      if (!makes_sense<T>(op)) continue;
      for (const bool canonical : {false, true}) {
        const Reduction reduction = canonical ? reduction_by(op).canonical() : reduction_by(op);
        for (std::size_t ranks = 1; ranks <= ranks_max; ++ranks) folds(reduction, ranks);
      }
    }
  }

 private:
  /// Some aligned for everything, some for their type alone, some for nothing.
  static std::size_t shift_of(std::size_t rank) {
    return rank % 3 == 0 ? 0 : rank % 3 == 1 ? sizeof(T) : rank;
  }

  void folds(const Reduction& reduction, std::size_t ranks) {
    const auto wanted = ranks_.wanted(reduction, ranks);
    const auto inputs = std::span<const std::byte* const>(places_).first(ranks);
    for (const Instructions set : instruction_sets()) {
      const Reducer fold(reduction, dtype_of<T>::value, true, set);
      int wrong = 0;
      const auto check = [&](std::size_t count, std::size_t shift, bool also, Stores stores) {
        Buffer out(shift), second(3 * shift);
        fold(inputs, out.begin(), also ? second.begin() : nullptr, count, stores);
        if (!holds(reduction, out, wanted, count)) ++wrong;
        if (!holds(reduction, second, wanted, also ? count : 0)) ++wrong;
      };
      for (std::size_t count = 0; count <= 70; ++count) {
        check(count, count % 2 == 0 ? 0 : sizeof(T), false, Stores::cached);
        if (count % 7 == 0) check(count, 5, true, Stores::cached);
      }
      for (const std::size_t count : {std::size_t{127}, std::size_t{256}, std::size_t{599}}) {
        for (const std::size_t shift : {std::size_t{0}, sizeof(T), std::size_t{1}}) {
          check(count, shift, false, Stores::streamed);
          check(count, shift, true, Stores::streamed);
          check(count, shift, true, Stores::cached);
        }
      }
      CHECK_MESSAGE(wrong == 0, reduction.name()
                                    << " of " << to_string(dtype_of<T>::value) << ", " << ranks
                                    << " ranks, instructions " << static_cast<int>(set)
                                    << (reduction.is_canonical() ? ", canonical" : ""));
      in_place(fold, reduction, wanted, ranks);
      if (fold.freedom() != Freedom::none) in_runs(fold, reduction, wanted, ranks);
    }
  }

  /// The ranks before a cut, and then the others onto what those came to.
  void in_runs(const Reducer& fold, const Reduction& reduction, const std::vector<T>& wanted,
               std::size_t ranks) {
    const std::size_t count = 533;
    PartialReducer partial(fold);
    const auto inputs = std::span<const std::byte* const>(places_);
    for (std::size_t cut = 1; cut <= ranks; ++cut) {
      Buffer between(0), out(1);
      partial.extend(nullptr, inputs.first(cut), between.begin(), count);
      partial.extend(between.begin(), inputs.subspan(cut, ranks - cut), between.begin(), count);
      partial.finish(between.begin(), out.begin(), count, static_cast<int>(ranks));
      CHECK(holds(reduction, out, wanted, count));
      if (!allows(fold.freedom(), Freedom::neighbours) || cut == ranks) continue;
      Buffer right(0);
      partial.extend(nullptr, inputs.first(cut), between.begin(), count);
      partial.extend(nullptr, inputs.subspan(cut, ranks - cut), right.begin(), count);
      const std::array<const std::byte*, 2> both{between.begin(), right.begin()};
      partial.joining()(both, between.begin(), count);
      partial.finish(between.begin(), out.begin(), count, static_cast<int>(ranks));
      CHECK(holds(reduction, out, wanted, count));
    }
  }

  /// The outputs are inputs.
  void in_place(const Reducer& fold, const Reduction& reduction, const std::vector<T>& wanted,
                std::size_t ranks) {
    for (const Stores stores : {Stores::cached, Stores::streamed}) {
      const std::size_t count = 301, last = ranks - 1;
      std::vector<Buffer> mine;
      mine.reserve(ranks);
      std::vector<const std::byte*> inputs;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        mine.emplace_back(shift_of(rank));
        ranks_.place(rank, mine[rank].begin());
        inputs.push_back(mine[rank].begin());
        mine[rank].begin()[count * sizeof(T)] = untouched;
      }
      fold(inputs, mine[last].begin(), mine[0].begin(), count, stores);
      CHECK(holds(reduction, mine[last], wanted, count));
      CHECK(holds(reduction, mine[0], wanted, count));
    }
  }

  const Ranks<T> ranks_;
  std::vector<Buffer> inputs_;
  std::vector<const std::byte*> places_;
};

template <class T>
const std::byte* bytes_of(const std::vector<T>& values) {
  return reinterpret_cast<const std::byte*>(values.data());
}

/// All 65,536 numbers of a 16-bit type.
template <class T>
std::vector<T> all_numbers() {
  std::vector<T> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

template <class T>
int wrong_bits(const std::vector<T>& got, const std::vector<T>& wanted) {
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i].bits != wanted[i].bits;
  return wrong;
}

template <class T>
void check_conversions(Instructions set) {
  const auto all = all_numbers<T>();
  std::vector<T> got(all.size()), wanted(all.size());
  const std::array<const std::byte*, 1> alone{bytes_of(all)};
  auto* out = reinterpret_cast<std::byte*>(got.data());
  for (const double factor : {1.0, 0.5, 1.0 / 3, 3.0, 0.999, 0x1p-10, 0x1p-14, 1.5e-8, 1e5}) {
    const auto premul = Reduction::premul_sum(factor);
    Reducer(premul, dtype_of<T>::value, false, set)(alone, out, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) wanted[i] = scalar_fold<T>(premul, {all[i]});
    CHECK_MESSAGE(wrong_bits(got, wanted) == 0, to_string(dtype_of<T>::value) << " by " << factor);
  }
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::mean}) {
    for (const int bits : {0x0000, 0x8000, 0x0001, 0x83ff, 0x3c00, 0x3555, 0x7bff, 0xfbff, 0x0400,
                           0x7c00, 0xff80, 0x4248}) {
      T other;
      other.bits = static_cast<std::uint16_t>(bits);
      const std::vector<T> others(all.size(), other);
      const std::array<const std::byte*, 2> both{bytes_of(all), bytes_of(others)};
      Reducer(op, dtype_of<T>::value, false, set)(both, out, all.size());
      for (std::size_t i = 0; i < all.size(); ++i) {
        wanted[i] = scalar_fold<T>(op, {all[i], other});
        // Either of two NaN may show.
        if (is_nan(other) && is_nan(all[i]) && is_nan(got[i])) wanted[i] = got[i];
      }
      CHECK_MESSAGE(wrong_bits(got, wanted) == 0,
                    to_string(op) << " of " << to_string(dtype_of<T>::value) << " with " << bits);
    }
  }
}

}  // namespace

TEST_CASE_TEMPLATE("every fold has the bits of its definition", T, std::uint8_t, std::int8_t,
                   std::int16_t, std::uint16_t, std::int32_t, std::uint32_t, std::int64_t,
                   std::uint64_t, float16, bfloat16, float, double, bool, std::complex<float>,
                   std::complex<double>) {
  Check<T>().all();
}

TEST_CASE("all 65,536 numbers of 16 bits are converted and rounded as tensor.hpp says") {
  for (const Instructions set : instruction_sets()) {
    CAPTURE(static_cast<int>(set));
    check_conversions<float16>(set);
    check_conversions<bfloat16>(set);
  }
}

TEST_CASE("a NaN keeps what it carries, and the leftmost wins in min and max") {
  for (const Instructions set : instruction_sets()) {
    for (std::size_t bearer = 0; bearer < 5; ++bearer) {
      std::vector<std::vector<float>> values(5, std::vector<float>(37, 1.5f));
      for (float& x : values[bearer]) x = std::bit_cast<float>(0xffc12345U);
      std::vector<const std::byte*> inputs;
      for (const auto& each : values) inputs.push_back(bytes_of(each));
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
        std::vector<float> got(37);
        const Reduction reduction(op);
        Reducer(reduction, DType::f32, false, set)(inputs, reinterpret_cast<std::byte*>(got.data()),
                                                   got.size());
        for (const float x : got) CHECK(std::bit_cast<std::uint32_t>(x) == 0xffc12345U);
      }
      if (bearer == 4) continue;
      for (float& x : values[4]) x = std::bit_cast<float>(0x7fc00001U);
      std::vector<float> got(37);
      Reducer(ReduceOp::min, DType::f32, false, set)(
          inputs, reinterpret_cast<std::byte*>(got.data()), got.size());
      for (const float x : got) CHECK(std::bit_cast<std::uint32_t>(x) == 0xffc12345U);
    }
  }
}

TEST_CASE("a fold is taken apart only as far as its bits allow") {
  const auto freedom = [](const Reduction& reduction, DType dtype) {
    return Reducer(reduction, dtype, true).freedom();
  };
  const auto custom = Reduction::custom("own", [](void*, const void*, std::size_t, DType) {});
  CHECK(freedom(ReduceOp::sum, DType::i32) == Freedom::any);
  CHECK(freedom(ReduceOp::mean, DType::i32) == Freedom::none);
  CHECK(freedom(Reduction(ReduceOp::max).canonical(), DType::u8) == Freedom::any);
  CHECK(freedom(ReduceOp::sum, DType::boolean) == Freedom::any);
  CHECK(freedom(ReduceOp::min, DType::f32) == Freedom::neighbours);
  CHECK(freedom(ReduceOp::sum, DType::bf16) == Freedom::extends);
  CHECK(freedom(Reduction(ReduceOp::sum).canonical(), DType::f32) == Freedom::none);
  CHECK(freedom(Reduction(ReduceOp::mean).any_order(), DType::f16) == Freedom::any);
  CHECK(freedom(Reduction(ReduceOp::sum).any_order().canonical(), DType::f32) == Freedom::none);
  CHECK(freedom(custom, DType::i32) == Freedom::extends);
  CHECK(freedom(custom.any_order(), DType::i32) == Freedom::any);
}

TEST_CASE("the canonical order folds neighbours first, also by a function of the program's own") {
  const auto digits = Reduction::custom(
      "bracket", [](void* accumulated, const void* next, std::size_t count, DType) {
        auto* a = static_cast<int*>(accumulated);
        const auto* b = static_cast<const int*>(next);
        for (std::size_t i = 0; i < count; ++i) a[i] = 2 * a[i] + b[i];
      });
  const std::vector<std::vector<int>> values{{1}, {1}, {1}, {1}, {1}};
  std::vector<const std::byte*> inputs;
  for (const auto& each : values) inputs.push_back(bytes_of(each));
  std::vector<int> got(1), also(1);
  const auto fold = [&](const Reduction& reduction) {
    Reducer(reduction, DType::i32, false)(inputs, reinterpret_cast<std::byte*>(got.data()),
                                          reinterpret_cast<std::byte*>(also.data()), 1);
    CHECK(got == also);
    return got[0];
  };
  CHECK(fold(digits) == 31);              // ((((1)3)7)15)31
  CHECK(fold(digits.canonical()) == 19);  // 2 * (2 * 3 + 3) + 1
}
