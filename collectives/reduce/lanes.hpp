#pragma once

// The loops of a reduction, for one set of instructions, as elements.hpp is.

#include "collectives/reduce/elements.hpp"
#include "collectives/reduce/kernels.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

#if defined(__GNUC__) && !defined(__clang__)
// GCC does not see that each place of the binary counter is filled before it is read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace dlaunch::kernels {
namespace {

/// Vectors reduced side by side: enough to keep the loads of one source busy while the pointer to
/// the next is fetched, few enough to stay in registers.
constexpr int tile_vectors = 4;
/// Enough for any number of ranks.
constexpr int association_depth = 32;

// ---- Operations: on two accumulators, with steps before and after. ----

/// The parameters of an operation.
template <class S>
struct Known {
  S factor;
  S ranks;
};

struct Plainly {
  template <class S, class V>
  DLAUNCH_INLINE static V before(V value, const Known<S>&) {
    return value;
  }
  template <class S, class V>
  DLAUNCH_INLINE static V after(V value, const Known<S>&) {
    return value;
  }
};
struct Sum : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return static_cast<V>(a + b);
  }
};
struct Mean : Sum {
  template <class S, class V>
  DLAUNCH_INLINE static V after(V value, const Known<S>& known) {
    return value / known.ranks;
  }
};
struct PremulSum : Sum {
  template <class S, class V>
  DLAUNCH_INLINE static V before(V value, const Known<S>& known) {
    return value * known.factor;
  }
};
struct Product : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    // Two plain u16 would become int, whose product may overflow.
    if constexpr (sizeof(V) == 2) return static_cast<V>(1U * a * b);
    return static_cast<V>(a * b);
  }
};
/// x != x is true for NaN alone: a NaN on either side wins.
struct Min : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct And : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return static_cast<V>(a & b);
  }
};
struct Or : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return static_cast<V>(a | b);
  }
};
struct Xor : Plainly {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return static_cast<V>(a ^ b);
  }
};
/// Elements that are not 0 count as 1.
struct Truths {
  template <class S, class V>
  DLAUNCH_INLINE static V before(V value, const Known<S>&) {
    const V zero{}, one = static_cast<V>(zero + S{1});
    return value != zero ? one : zero;
  }
  template <class S, class V>
  DLAUNCH_INLINE static V after(V value, const Known<S>&) {
    return value;
  }
};
/// Bitwise operations on integers serve truths, too.
template <class Bitwise>
struct Logical : Truths {
  template <class V>
  DLAUNCH_INLINE static V apply(V a, V b) {
    return Bitwise::apply(a, b);
  }
};

// ---- The loops. ----

/// Writes past the caches; `to` is aligned.
template <class V>
DLAUNCH_INLINE void stream(std::byte* to, V value) {
#if defined(__AVX512F__)
  if constexpr (sizeof(V) == 64) {
    return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), bits_as<__m512i>(value));
  }
#endif
#if defined(__AVX2__)
  if constexpr (sizeof(V) == 32) {
    return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), bits_as<__m256i>(value));
  }
#endif
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 16) {
    return _mm_stream_si128(reinterpret_cast<__m128i*>(to), bits_as<__m128i>(value));
  }
#endif
  __builtin_memcpy(to, &value, sizeof value);
}

template <class Element, class Op, Association association>
class Fold {
  using Stored = typename Element::Stored;
  using Summed = typename Element::Summed;
  using One = typename Element::One;
  /// Lanes of a vector of so many bytes, and the elements of an accumulator's parts.
  static constexpr int lanes(int bytes) { return bytes / static_cast<int>(sizeof(Summed)); }
  static constexpr std::size_t elements(int bytes) {
    return static_cast<std::size_t>(lanes(bytes) * Element::parts);
  }

 public:
  explicit Fold(const Job& job)
      : job_(job), known_{static_cast<Summed>(job.factor), static_cast<Summed>(job.ranks)} {}

  DLAUNCH_INLINE void run() {
    constexpr int n = lanes(register_bytes);
    constexpr int side_by_side = tile_vectors / Element::parts;
    constexpr std::size_t step = elements(register_bytes), tile = step * side_by_side;
    if (job_.streamed && is_aligned(sizeof(Stored))) {
      while (!is_aligned(step * sizeof(Stored)) && done_ < job_.count) fold<One, 1, 1>();
      while (job_.count - done_ >= tile) fold<Element, n, side_by_side, true>();
#if defined(__x86_64__)
      _mm_sfence();
#endif
    }
    while (job_.count - done_ >= tile) fold<Element, n, side_by_side>();
    while (job_.count - done_ >= step) fold<Element, n, 1>();
    if constexpr (register_bytes > 32) {
      if (job_.count - done_ >= elements(32)) fold<Element, lanes(32), 1>();
    }
    if constexpr (register_bytes > 16) {
      if (job_.count - done_ >= elements(16)) fold<Element, lanes(16), 1>();
    }
    while (done_ < job_.count) fold<One, 1, 1>();
  }

 private:
  /// `vectors` neighbours of n lanes each, in E's parts.
  template <class E, int n, int vectors>
  struct Tile {
    Lanes<Summed, n> at[vectors * E::parts];
  };

  /// Whether the next result is aligned.
  bool is_aligned(std::size_t bytes) const {
    return reinterpret_cast<std::uintptr_t>(job_.out + done_ * sizeof(Stored)) % bytes == 0;
  }

  template <class E, int n, int vectors>
  DLAUNCH_INLINE Tile<E, n, vectors> enter(std::size_t rank) const {
    Tile<E, n, vectors> tile;
    const std::byte* from = job_.inputs[rank] + done_ * sizeof(Stored);
    for (int i = 0; i < vectors; ++i) {
      E::template enter<n>(from, tile.at + i * E::parts);
      from += static_cast<std::size_t>(n * E::parts) * sizeof(Stored);
    }
    for (auto& lanes : tile.at) lanes = Op::template before<Summed>(lanes, known_);
    return tile;
  }

  template <class T>
  DLAUNCH_INLINE static T joined(T left, const T& right) {
    constexpr int count = static_cast<int>(sizeof left.at / sizeof left.at[0]);
    for (int i = 0; i < count; ++i) left.at[i] = Op::apply(left.at[i], right.at[i]);
    return left;
  }

  template <class E, int n, int vectors>
  DLAUNCH_INLINE Tile<E, n, vectors> folded() const {
    using T = Tile<E, n, vectors>;
    if constexpr (association == Association::left) {
      T all = enter<E, n, vectors>(0);
      for (std::size_t rank = 1; rank < job_.ranks; ++rank) {
        all = joined(all, enter<E, n, vectors>(rank));
      }
      return all;
    } else {
      // A binary counter: the entry at depth d is the reduction of 2^d ranks, which follow all
      // ranks of greater depths.
      T waiting[association_depth];
      for (std::size_t rank = 0; rank < job_.ranks; ++rank) {
        T last = enter<E, n, vectors>(rank);
        int depth = 0;
        for (; ((rank >> depth) & 1U) != 0; ++depth) last = joined(waiting[depth], last);
        waiting[depth] = last;
      }
      int depth = __builtin_ctzll(job_.ranks);
      T last = waiting[depth];
      for (++depth; (job_.ranks >> depth) != 0; ++depth) {
        if (((job_.ranks >> depth) & 1U) != 0) last = joined(waiting[depth], last);
      }
      return last;
    }
  }

  /// All loads come before the stores: the outputs may be inputs.
  template <class E, int n, int vectors, bool streams = false>
  DLAUNCH_INLINE void fold() {
    auto all = folded<E, n, vectors>();
    for (auto& lanes : all.at) lanes = Op::template after<Summed>(lanes, known_);
    for (int i = 0; i < vectors; ++i) {
      const auto result = E::template leave<n>(all.at + i * E::parts);
      const std::size_t at = done_ * sizeof(Stored) + static_cast<std::size_t>(i) * sizeof result;
      if constexpr (streams) {
        stream(job_.out + at, result);
      } else {
        __builtin_memcpy(job_.out + at, &result, sizeof result);
      }
      if (job_.also != nullptr) __builtin_memcpy(job_.also + at, &result, sizeof result);
    }
    done_ += static_cast<std::size_t>(n * vectors * E::parts);
  }

  const Job job_;
  const Known<Summed> known_;
  std::size_t done_ = 0;
};

template <class Element, class Op, Association association>
void run(const Job& job) {
  Fold<Element, Op, association>(job).run();
}

/// For floats, whose association counts.
template <class Element>
Kernel find_rounding(ReduceOp op, Association association) {
  const bool left = association == Association::left;
  switch (op) {
    case ReduceOp::sum:
      return left ? run<Element, Sum, Association::left> : run<Element, Sum, Association::pairs>;
    case ReduceOp::product:
      return left ? run<Element, Product, Association::left>
                  : run<Element, Product, Association::pairs>;
    case ReduceOp::mean:
      return left ? run<Element, Mean, Association::left> : run<Element, Mean, Association::pairs>;
    case ReduceOp::premul_sum:
      return left ? run<Element, PremulSum, Association::left>
                  : run<Element, PremulSum, Association::pairs>;
    case ReduceOp::min:
      return run<Element, Min, Association::left>;
    case ReduceOp::max:
      return run<Element, Max, Association::left>;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
    case ReduceOp::custom:
    case ReduceOp::land:
    case ReduceOp::lor:
    case ReduceOp::lxor:
      return nullptr;
  }
  return nullptr;
}

/// For integers: signed ones are added and multiplied as unsigned ones, which wrap where the others
/// would be undefined, and give the same bits.
template <class Signed, class Unsigned, bool is_signed>
Kernel find_whole(ReduceOp op) {
  using Own = Plain<std::conditional_t<is_signed, Signed, Unsigned>>;
  switch (op) {
    case ReduceOp::sum:
      return run<Plain<Unsigned>, Sum, Association::left>;
    case ReduceOp::product:
      return run<Plain<Unsigned>, Product, Association::left>;
    case ReduceOp::min:
      return run<Own, Min, Association::left>;
    case ReduceOp::max:
      return run<Own, Max, Association::left>;
    case ReduceOp::band:
      return run<Plain<Unsigned>, And, Association::left>;
    case ReduceOp::bor:
      return run<Plain<Unsigned>, Or, Association::left>;
    case ReduceOp::bxor:
      return run<Plain<Unsigned>, Xor, Association::left>;
    case ReduceOp::land:
      return run<Plain<Unsigned>, Logical<And>, Association::left>;
    case ReduceOp::lor:
      return run<Plain<Unsigned>, Logical<Or>, Association::left>;
    case ReduceOp::lxor:
      return run<Plain<Unsigned>, Logical<Xor>, Association::left>;
    case ReduceOp::mean:
    case ReduceOp::premul_sum:
    case ReduceOp::custom:
      return nullptr;
  }
  return nullptr;
}

/// Bytes of 0 and 1.
inline Kernel find_boolean(ReduceOp op) {
  using Byte = Plain<std::uint8_t>;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::max:
    case ReduceOp::bor:
      return run<Byte, Or, Association::left>;
    case ReduceOp::lor:
      return run<Byte, Logical<Or>, Association::left>;
    case ReduceOp::product:
    case ReduceOp::min:
    case ReduceOp::band:
      return run<Byte, And, Association::left>;
    case ReduceOp::land:
      return run<Byte, Logical<And>, Association::left>;
    case ReduceOp::bxor:
      return run<Byte, Xor, Association::left>;
    case ReduceOp::lxor:
      return run<Byte, Logical<Xor>, Association::left>;
    case ReduceOp::mean:
    case ReduceOp::premul_sum:
    case ReduceOp::custom:
      return nullptr;
  }
  return nullptr;
}

inline Kernel find(ReduceOp op, DType dtype, Association association) {
  switch (dtype) {
    case DType::u8:
      return find_whole<std::int8_t, std::uint8_t, false>(op);
    case DType::i8:
      return find_whole<std::int8_t, std::uint8_t, true>(op);
    case DType::u16:
      return find_whole<std::int16_t, std::uint16_t, false>(op);
    case DType::i16:
      return find_whole<std::int16_t, std::uint16_t, true>(op);
    case DType::u32:
      return find_whole<std::int32_t, std::uint32_t, false>(op);
    case DType::i32:
      return find_whole<std::int32_t, std::uint32_t, true>(op);
    case DType::u64:
      return find_whole<std::int64_t, std::uint64_t, false>(op);
    case DType::i64:
      return find_whole<std::int64_t, std::uint64_t, true>(op);
    case DType::f16:
      return find_rounding<Half>(op, association);
    case DType::bf16:
      return find_rounding<Bfloat>(op, association);
    case DType::f32:
      return find_rounding<Plain<float>>(op, association);
    case DType::f64:
      return find_rounding<Plain<double>>(op, association);
    case DType::boolean:
      return find_boolean(op);
    case DType::c64:
    case DType::c128:
      return nullptr;
  }
  return nullptr;
}

}  // namespace
}  // namespace dlaunch::kernels
