#include "collectives/reduce/reduce.hpp"

#include "collectives/reduce/element_types.hpp"
#include "collectives/transport/message/message.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>
#include <vector>

namespace dlaunch {
namespace {

using kernels::Association;
using kernels::Found;
using kernels::Kernel;
/// Tell orders apart; any numbers would do.
constexpr std::uint64_t canonical_hash = 0x63616e6f6e696361U;
constexpr std::uint64_t any_order_hash = 0x616e796f72646572U;

using Inputs = std::span<const std::byte* const>;

bool is_integer(DType dtype) { return is_of(ElementKind::integer, dtype); }
bool is_complex(DType dtype) { return is_of(ElementKind::complex, dtype); }

Kernel find_plain(ReduceOp op, DType dtype, Association association, Instructions instructions) {
  switch (instructions) {
    case Instructions::baseline:
      return kernels::find_baseline(op, dtype, association);
#if defined(__x86_64__)
    case Instructions::avx2:
      return kernels::find_avx2(op, dtype, association);
    case Instructions::avx512:
      return kernels::find_avx512(op, dtype, association);
#else
    case Instructions::avx2:
    case Instructions::avx512:
      return kernels::find_baseline(op, dtype, association);
#endif
  }
  return nullptr;
}

Found find(ReduceOp op, DType dtype, Association association, Instructions instructions) {
  // But for products, a complex number is reduced as its two parts are.
  if (is_complex(dtype) &&
      (op == ReduceOp::sum || op == ReduceOp::mean || op == ReduceOp::premul_sum)) {
    return {find_plain(op, element_type(dtype).part, association, instructions), 2};
  }
  return {find_plain(op, dtype, association, instructions), 1};
}

/// Small calls look here, and take less time than finding would.
struct Best {
  Best() {
    const Instructions instructions = best_instructions();
    for (std::size_t op = 0; op < ops; ++op) {
      for (std::size_t dtype = 0; dtype < dtypes; ++dtype) {
        for (const auto association : {Association::left, Association::pairs}) {
          found[op][dtype][static_cast<std::size_t>(association)] =
              find(static_cast<ReduceOp>(op), static_cast<DType>(dtype), association, instructions);
        }
      }
    }
  }
  static constexpr std::size_t ops = static_cast<std::size_t>(ReduceOp::custom) + 1;
  static constexpr std::size_t dtypes = element_types.size() + 1;
  Found found[ops][dtypes][2];
};

}  // namespace

const Found& kernels::find_best(ReduceOp op, DType dtype, Association association) noexcept {
  static const Best best;
  static constexpr Found none{};
  const auto row = static_cast<std::size_t>(op), column = static_cast<std::size_t>(dtype);
  if (row >= Best::ops || column >= Best::dtypes) return none;
  return best.found[row][column][static_cast<std::size_t>(association)];
}

std::uint64_t hash_of_special(const Reduction& reduction) {
  std::uint64_t hash = 0;
  if (reduction.op() == ReduceOp::premul_sum) {
    hash = std::bit_cast<std::uint64_t>(reduction.factor());
  } else if (reduction.op() == ReduceOp::custom) {
    hash = text_hash(reduction.name());
  }
  if (reduction.is_any_order()) return hash ^ any_order_hash;
  return reduction.is_canonical() ? hash ^ canonical_hash : hash;
}

Instructions best_instructions() noexcept {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vbmi2") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    return Instructions::avx512;
  }
  // Every processor with AVX2 has F16C.
  if (__builtin_cpu_supports("avx2")) return Instructions::avx2;
#endif
  return Instructions::baseline;
}

Reducer::Reducer(const Reduction& reduction, DType dtype, bool truncate_mean,
                 Instructions instructions)
    : reduction_(reduction),
      found_(find(reduction.op(), dtype, association_of(reduction), instructions)),
      dtype_(dtype),
      instructions_(instructions) {
  if (found_.kernel == nullptr) find_other(truncate_mean);
}

void Reducer::find_other(bool truncate_mean) {
  if (const auto reason = objection(reduction_, dtype_, truncate_mean)) {
    throw Error(Errc::misuse, *reason);
  }
  found_.kernel = kernels::find_scalar(reduction_.op(), dtype_, association_of(reduction_));
}

Freedom Reducer::freedom() const {
  const ReduceOp op = reduction_.op();
  const bool whole = is_integer(dtype_) || dtype_ == DType::boolean;
  // A mean of integers is divided where their sum is, which may take more bits than an element.
  if (whole && op == ReduceOp::mean) return Freedom::none;
  if (whole && op != ReduceOp::custom) return Freedom::any;
  if (reduction_.is_canonical()) {
    return op == ReduceOp::min || op == ReduceOp::max ? Freedom::neighbours : Freedom::none;
  }
  if (reduction_.is_any_order()) return Freedom::any;
  // Which of two zeros, or of two NaNs, counts on their order alone.
  if (op == ReduceOp::min || op == ReduceOp::max) return Freedom::neighbours;
  return Freedom::extends;
}

std::optional<std::string> Reducer::objection(const Reduction& reduction, DType dtype,
                                              bool truncate_mean) {
  const std::string pair =
      std::string(to_string(reduction.op())) + " of " + to_string(dtype) + " elements";
  const bool complex = is_complex(dtype);
  const bool boolean = dtype == DType::boolean;
  switch (reduction.op()) {
    case ReduceOp::sum:
    case ReduceOp::product:
    case ReduceOp::custom:
      return std::nullopt;
    case ReduceOp::min:
    case ReduceOp::max:
      if (complex) return pair + " makes no sense: complex numbers have no order";
      return std::nullopt;
    case ReduceOp::mean:
      if (boolean) return pair + " makes no sense: cast first to a floating-point type";
      if (is_integer(dtype) && !truncate_mean) {
        return pair + " would drop the fraction: cast first to a floating-point type, or set " +
               "ReduceOptions::truncate_mean";
      }
      return std::nullopt;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      if (is_integer(dtype) || boolean) return std::nullopt;
      return pair + " makes no sense: bitwise operations are for integers and bool";
    case ReduceOp::premul_sum:
      if (is_integer(dtype) || boolean) {
        return pair + " makes no sense: cast first to a floating-point type";
      }
      return std::nullopt;
  }
  return "an unknown reduction";
}

void Reducer::fold_custom(Inputs inputs, std::byte* out, std::byte* also, std::size_t count) const {
  const std::size_t bytes = count * size_of(dtype_);
  if (bytes == 0) return;
  const auto take = [&](std::size_t rank) {
    return std::vector<std::byte>(inputs[rank], inputs[rank] + bytes);
  };
  // The outputs may be inputs, so the result is accumulated apart from them.
  std::vector<std::byte> all;
  if (!reduction_.is_canonical()) {
    all = take(0);
    for (const std::byte* input : inputs.subspan(1)) {
      reduction_.fold()(all.data(), input, count, dtype_);
    }
  } else {
    std::vector<std::vector<std::byte>> folds;
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) folds.push_back(take(rank));
    for (std::size_t distance = 1; distance < folds.size(); distance *= 2) {
      for (std::size_t left = 0; left + distance < folds.size(); left += 2 * distance) {
        reduction_.fold()(folds[left].data(), folds[left + distance].data(), count, dtype_);
      }
    }
    all = std::move(folds[0]);
  }
  std::memcpy(out, all.data(), bytes);
  if (also != nullptr) std::memcpy(also, all.data(), bytes);
}

}  // namespace dlaunch
