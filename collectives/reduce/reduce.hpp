#pragma once

#include "collectives/reduce/kernels.hpp"
#include "collectives/reduce/reduce_ops.hpp"

#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace dlaunch {

/// The set of instructions that a reduction uses; the result has the same bits with each.
enum class Instructions : std::uint8_t { baseline, avx2, avx512 };
/// The best that this processor has. AVX-512 only where it came with VBMI2: earlier processors slow
/// down for it.
Instructions best_instructions() noexcept;

/// A hash of what ranks must have in common, beside the operation, for their reductions to be the
/// same: the factor, the name, the order. 0 if there is nothing.
std::uint64_t hash_of_special(const Reduction& reduction);
/// Such a reduction has nothing of the kind.
inline bool is_plain(const Reduction& reduction) {
  return is_all(reduction.op()) && !reduction.is_canonical() && !reduction.is_any_order();
}
inline std::uint64_t hash_of(const Reduction& reduction) {
  return is_plain(reduction) ? 0 : hash_of_special(reduction);
}

/// The way in which a result is written.
enum class Stores : std::uint8_t {
  cached,
  /// `out` goes past the caches: for results far larger than they are, that are not read soon, or
  /// that a processor reads which shares no cache with this one.
  streamed,
};

/// One reduction of one element type, ready to be applied. Pure; a value. Making one allocates
/// nothing, and applying it neither, unless the reduction is the program's own.
class Reducer {
 public:
  /// `reduction` is borrowed for the reducer's life. Throws Error{misuse} with objection()'s
  /// sentence.
  Reducer(const Reduction& reduction, DType dtype, bool truncate_mean)
      : reduction_(reduction),
        found_(kernels::find_best(reduction.op(), dtype, association_of(reduction))),
        dtype_(dtype),
        element_bytes_(size_of(dtype)) {
    if (found_.kernel == nullptr) [[unlikely]]
      find_other(truncate_mean);
  }
  /// The same with the given instructions.
  Reducer(const Reduction& reduction, DType dtype, bool truncate_mean, Instructions instructions);

  /// Why this operation makes no sense for this type, naming both; nullopt if it does.
  static std::optional<std::string> objection(const Reduction& reduction, DType dtype,
                                              bool truncate_mean);
  /// Why so many bytes are no whole number of the reduction's own elements; nullopt if they are.
  static std::optional<std::string> remainder(const Reduction& reduction, std::size_t bytes);

  std::size_t element_bytes() const { return element_bytes_; }
  /// The most bytes up to `bytes` that are whole elements.
  std::size_t whole(std::size_t bytes) const { return bytes / element_bytes_ * element_bytes_; }
  Freedom freedom() const;
  const Reduction& reduction() const { return reduction_; }
  DType dtype() const { return dtype_; }
  Instructions instructions() const { return instructions_.value_or(best_instructions()); }
  /// out[i] = inputs[0][i] op inputs[1][i] op ..., `count` elements each: from left to right, or in
  /// the canonical order if the reduction asks for it. At least one input. `out` may be one of the
  /// inputs; none needs an alignment.
  void operator()(std::span<const std::byte* const> inputs, std::byte* out,
                  std::size_t count) const {
    (*this)(inputs, out, nullptr, count);
  }
  /// The same, and in the same pass into `also`, if it is not null; it, too, may be an input.
  void operator()(std::span<const std::byte* const> inputs, std::byte* out, std::byte* also,
                  std::size_t count, Stores stores = Stores::cached) const {
    if (found_.kernel == nullptr) return fold_custom(inputs, out, also, count);
    found_.kernel({inputs.data(), inputs.size(), out, also, count * found_.lanes,
                   reduction_.factor(), stores == Stores::streamed});
  }

 private:
  static kernels::Association association_of(const Reduction& reduction) {
    return reduction.is_canonical() ? kernels::Association::pairs : kernels::Association::left;
  }
  /// For reductions without a vector kernel.
  void find_other(bool truncate_mean);
  void fold_custom(std::span<const std::byte* const> inputs, std::byte* out, std::byte* also,
                   std::size_t count) const;

  const Reduction& reduction_;
  kernels::Found found_;  ///< Null: the program's own.
  DType dtype_;
  std::size_t element_bytes_;                 ///< The dtype's, or a custom operation's own.
  std::optional<Instructions> instructions_;  ///< nullopt: the best.
};

}  // namespace dlaunch
