#include "collectives/reduce/reduce.hpp"

#include "runtime/base/text_hash.hpp"

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
/// Arbitrary numbers that tell orders apart.
constexpr std::uint64_t canonical_hash = 0x63616e6f6e696361U;
constexpr std::uint64_t any_order_hash = 0x616e796f72646572U;

using Inputs = std::span<const std::byte* const>;

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
  if (is_of(ElementKind::complex, dtype) && traits_of(op).is_by_parts) {
    return {find_plain(op, element_type(dtype).part, association, instructions), 2};
  }
  return {find_plain(op, dtype, association, instructions), 1};
}

/// The kernels that were found, for small calls: a look here takes less time than finding.
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
  static constexpr std::size_t ops = reduce_ops.size() + 1;
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
  switch (traits_of(reduction.op()).needs) {
    case Needs::nothing:
      break;
    case Needs::factor:
      hash = std::bit_cast<std::uint64_t>(reduction.factor());
      break;
    case Needs::function:
      hash = text_hash(reduction.name()) + reduction.element_bytes();
      break;
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
  // F16C is not checked: every processor with AVX2 has it.
  if (__builtin_cpu_supports("avx2")) return Instructions::avx2;
#endif
  return Instructions::baseline;
}

Reducer::Reducer(const Reduction& reduction, DType dtype, bool truncate_mean,
                 Instructions instructions)
    : reduction_(reduction),
      found_(find(reduction.op(), dtype, association_of(reduction), instructions)),
      dtype_(dtype),
      element_bytes_(size_of(dtype)),
      instructions_(instructions) {
  if (found_.kernel == nullptr) find_other(truncate_mean);
}

void Reducer::find_other(bool truncate_mean) {
  if (const auto reason = objection(reduction_, dtype_, truncate_mean)) {
    throw Error(Errc::misuse, *reason);
  }
  found_.kernel = kernels::find_scalar(reduction_.op(), dtype_, association_of(reduction_));
  if (reduction_.element_bytes() != 0) element_bytes_ = reduction_.element_bytes();
}

Freedom Reducer::freedom() const {
  const ElementKind kind = element_type(dtype_).kind;
  const bool is_whole = kind == ElementKind::integer || kind == ElementKind::boolean;
  const ReduceOpTraits row = traits_of(reduction_.op());
  const Freedom in_order = is_whole ? row.whole : row.rounded;
  switch (in_order) {
    case Freedom::none:
    case Freedom::any:
      return in_order;
    case Freedom::extends:
      if (reduction_.is_canonical()) return Freedom::none;
      [[fallthrough]];
    case Freedom::neighbours:
      return reduction_.is_any_order() ? Freedom::any : in_order;
  }
  return Freedom::none;
}

std::optional<std::string> Reducer::objection(const Reduction& reduction, DType dtype,
                                              bool truncate_mean) {
  if (find_traits(reduction.op()) == nullptr) return "an unknown reduction";
  if (size_of(dtype) != 0 && reduction.element_bytes() % size_of(dtype) != 0) {
    return "an element of " + std::to_string(reduction.element_bytes()) + " bytes, which " +
           reduction.name() + " reduces, is no whole number of " + to_string(dtype) + " elements";
  }
  const Sense sense = sense_of(reduction.op(), dtype);
  if (sense == Sense::good || (sense == Sense::truncates && truncate_mean)) return std::nullopt;
  const std::string pair =
      std::string(to_string(reduction.op())) + " of " + to_string(dtype) + " elements";
  switch (sense) {
    case Sense::good:
      break;
    case Sense::truncates:
      return pair + " would drop the fraction: cast first to a floating-point type, or sum and " +
             "divide";
    case Sense::too_small:
      return pair + " makes no sense: cast first to a floating-point type";
    case Sense::no_order:
      return pair + " makes no sense: complex numbers have no order";
    case Sense::no_bits:
      return pair + " makes no sense: bitwise operations are for integers and bool";
    case Sense::no_truth:
      return pair + " makes no sense: logical operations are for integers and bool";
  }
  return std::nullopt;
}

std::optional<std::string> Reducer::remainder(const Reduction& reduction, std::size_t bytes) {
  const std::size_t own = reduction.element_bytes();
  if (own == 0 || bytes % own == 0) return std::nullopt;
  return std::to_string(bytes) + " bytes are no whole number of the elements of " +
         std::to_string(own) + " bytes that " + reduction.name() + " reduces";
}

void Reducer::fold_custom(Inputs inputs, std::byte* out, std::byte* also, std::size_t count) const {
  const std::size_t bytes = count * element_bytes_;
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
