#pragma once

#include "collectives/call.hpp"

#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <span>
#include <string>

/// What a call asks of its arguments; each throws Error{misuse} with a sentence.
namespace dlaunch {

[[noreturn]] void refuse(const Call& call, const std::string& sentence);
/// `otherwise()` is the sentence; it is not made where nothing is wrong.
template <class Sentence>
void require(const Call& call, bool holds, const Sentence& otherwise) {
  if (!holds) [[unlikely]] {
    refuse(call, otherwise());
  }
}
inline void check_timeout(const Call& call, Clock::duration timeout) {
  require(call, timeout >= Clock::duration::zero(),
          [] { return std::string("a timeout is not negative"); });
}
void check_root(const Call& call, int root);
[[noreturn]] void refuse_view(const Call& call, const ConstTensorView& view);
/// A known dtype, and a pointer where there are elements.
inline void check_view(const Call& call, const ConstTensorView& view) {
  const bool has_place = view.data != nullptr || view.count == 0;
  if (size_of(view.dtype) == 0 || !has_place) [[unlikely]] {
    refuse_view(call, view);
  }
}
/// `other` is a view like `view`, of `count` elements.
void check_same(const Call& call, const ConstTensorView& view, const ConstTensorView& other,
                std::size_t count);
/// One count for each rank, this rank's being `own`, the elements of `which`; returns their sum.
std::size_t check_counts(const Call& call, std::span<const std::size_t> counts, std::size_t own,
                         const char* which);

}  // namespace dlaunch
