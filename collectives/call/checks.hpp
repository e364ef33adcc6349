#pragma once

#include "collectives/call/call.hpp"
#include "collectives/call/poisoned.hpp"

#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

/// Checks of a call's arguments; each throws Error{misuse} with a sentence.
namespace dlaunch {

[[noreturn]] void refuse(const Call& call, const std::string& sentence);
/// `otherwise()` is the sentence; it is not made where nothing is wrong.
template <class Sentence>
void require(const Call& call, bool holds, const Sentence& otherwise) {
  if (!holds) [[unlikely]] {
    refuse(call, otherwise());
  }
}
// Every small call makes these checks, so their sentences are made out of line.
[[noreturn]] void refuse_timeout(const Call& call);
inline void check_timeout(const Call& call, Clock::duration timeout) {
  if (timeout < Clock::duration::zero()) [[unlikely]]
    refuse_timeout(call);
}
[[noreturn]] void refuse_root(const Call& call, int root);
inline void check_root(const Call& call, int root) {
  if (root < 0 || root >= call.size()) [[unlikely]]
    refuse_root(call, root);
}
/// No type takes more than 16 bytes an element, and no machine has 2^59 of any.
inline constexpr std::size_t elements_max = PTRDIFF_MAX / 16;
/// Whether a strided view's elements lie further from each other than memory may reach.
bool reaches_too_far(const ConstTensorView& view) noexcept;
[[noreturn]] void refuse_view(const Call& call, ConstTensorView view, const char* name);
/// A known dtype, a place, a pointer where there are elements, and no more of them, nor further
/// apart, than memory may hold; and all of them the program's, where AddressSanitizer can tell.
/// `name` is the argument's, for the sentence.
template <class Void>
void check_view(const Call& call, const BasicView<Void>& view, const char* name = "") {
  const bool has_place = (view.data != nullptr || view.count == 0) && view.place.cuda_device >= -1;
  const bool is_too_far = view.stride != 1 && reaches_too_far(view);
  if (size_of(view.dtype) == 0 || !has_place || view.count > elements_max || is_too_far ||
      is_poisoned(view)) [[unlikely]] {
    refuse_view(call, view, name);
  }
}
/// `other` is a view like `view`, of `count` elements.
void check_same(const Call& call, const ConstTensorView& view, const ConstTensorView& other,
                std::size_t count, const char* name = "", const char* other_name = "");
/// Input and output lie apart. Strided views are copied, and may lie anywhere.
void check_apart(const Call& call, const ConstTensorView& in, const ConstTensorView& out);
/// They lie apart or begin together.
void check_apart_or_same(const Call& call, const ConstTensorView& in, const ConstTensorView& out);
/// They lie apart, or `in` is this rank's part of `out`, which begins at element `first`.
void check_in_is_part(const Call& call, const ConstTensorView& in, const ConstTensorView& out,
                      std::size_t first);
/// The other way round.
void check_out_is_part(const Call& call, const ConstTensorView& in, const ConstTensorView& out,
                       std::size_t first);
/// Whether a list's views are written ('out') or read ('in').
enum class ListUse { read, written };
/// There is a view for each rank, and this rank's has the type and length of `part`, the call's
/// other buffer. Written views lie apart from all else, but `part` may be this rank's view.
void check_list(const Call& call, const std::vector<ConstTensorView>& list,
                const ConstTensorView& part, ListUse use);
/// Both lists have a view for each rank, all of one type; this rank's two are equally long, and
/// written views lie apart from all else.
void check_lists(const Call& call, const std::vector<ConstTensorView>& ins,
                 const std::vector<ConstTensorView>& outs);
/// Elements before this rank's part.
inline std::size_t elements_before(const Call& call, std::size_t each) {
  return static_cast<std::size_t>(call.rank()) * each;
}
std::size_t elements_before(const Call& call, std::span<const std::size_t> counts);
/// The elements of so many parts; if that overflows, more than there may be.
std::size_t parts_together(int parts, std::size_t each);
/// One count for each rank, this rank's being `own`, the elements of `which`; returns their sum.
std::size_t check_counts(const Call& call, std::span<const std::size_t> counts, std::size_t own,
                         const char* which);

}  // namespace dlaunch
