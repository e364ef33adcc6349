#pragma once

#include "collectives/reduce/kernels.hpp"
#include "collectives/reduce/reduce.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace dlaunch {

/// A reduction that is made in several places. The result of some ranks is a *partial*: it has the
/// type in which elements are accumulated (f32 for 16-bit floats, which are rounded only at the
/// end), factors are applied, and it is not divided yet. Passed on from rank to rank, it ends with
/// the same bits as one reduction of all. For one thread.
class PartialReducer {
 public:
  /// For a reduction whose freedom is not none; `whole` and its reduction are borrowed.
  explicit PartialReducer(const Reducer& whole);
  PartialReducer(const PartialReducer&) = delete;
  PartialReducer& operator=(const PartialReducer&) = delete;

  /// The bytes of one element of a partial.
  std::size_t element_bytes() const { return joining_.element_bytes(); }
  /// Whether elements are partials, and the last partial is the result.
  bool is_plain() const {
    return convert_.widen == nullptr && !has_factor_ && !divides_ && !is_truth_;
  }
  /// Whether a partial has as many bytes as an element.
  bool fits_in_place() const { return element_bytes() == whole_.element_bytes(); }

  /// out = partial op inputs[0] op inputs[1]..., from left to right: a partial. `partial` may be
  /// null; then there is at least one input. `out` may be `partial`, and one of the inputs if it
  /// fits in place.
  void extend(const std::byte* partial, std::span<const std::byte* const> inputs, std::byte* out,
              std::size_t count);
  /// Reduces partials to a partial.
  const Reducer& joining() const { return joining_; }
  /// The result of a partial of all `ranks`. `out` may be `partial`.
  void finish(const std::byte* partial, std::byte* out, std::size_t count, int ranks) const;

 private:
  const Reducer& whole_;
  const Reduction joining_reduction_;
  const Reducer joining_;
  kernels::Conversions convert_;  ///< Null where elements are accumulated in their own type.
  const bool has_factor_, divides_, is_truth_;
  const Reducer scaling_;  ///< Reduces one input: times the factor, if there is one.
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> inputs_;
};

}  // namespace dlaunch
