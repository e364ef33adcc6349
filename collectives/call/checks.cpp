#include "collectives/call/checks.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

namespace dlaunch {
namespace {

constexpr std::size_t too_many = ~std::size_t{0};

/// "'in': "
std::string named(const char* name) {
  return *name == '\0' ? std::string() : "'" + std::string(name) + "': ";
}

/// "1 element", "3 elements"; a wrong number may be huge.
std::string elements_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " element" : " elements");
}

const std::byte* part_of(const ConstTensorView& all, std::size_t first_element) {
  return static_cast<const std::byte*>(all.data) + first_element * size_of(all.dtype);
}

/// Whether two views share no byte. Strided views are copied, and may lie anywhere.
bool are_apart(const ConstTensorView& one, const ConstTensorView& other) {
  if (one.stride != 1 || other.stride != 1 || one.count == 0 || other.count == 0) return true;
  const auto a = reinterpret_cast<std::uintptr_t>(one.data);
  const auto b = reinterpret_cast<std::uintptr_t>(other.data);
  return a + one.bytes() <= b || b + other.bytes() <= a;
}

/// `in` and `out` lie apart, or `in` begins at `allowed`, which `exception` says in words.
void check_overlap(const Call& call, const ConstTensorView& in, const ConstTensorView& out,
                   const void* allowed, const char* exception) {
  require(call, in.data == allowed || are_apart(in, out),
          [&] { return std::string("'in' and 'out' overlap; ") + exception; });
}

/// "out[3]"
std::string entry(const char* list, std::size_t rank) {
  return std::string(list) + "[" + std::to_string(rank) + "]";
}

void require_one_each(const Call& call, const std::vector<ConstTensorView>& list,
                      const char* name) {
  require(call, list.size() == static_cast<std::size_t>(call.size()), [&] {
    return "'" + std::string(name) + "' has " + std::to_string(list.size()) + " views for " +
           plural(call.size(), "rank") + "; it has one for each";
  });
}

/// No two of them overlap.
void check_disjoint(const Call& call, const std::vector<ConstTensorView>& list, const char* name) {
  std::vector<std::size_t> order;
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    if (list[rank].count > 0 && list[rank].stride == 1) order.push_back(rank);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(list[a].data, a) < std::pair(list[b].data, b);
  });
  for (std::size_t i = 1; i < order.size(); ++i) {
    require(call, are_apart(list[order[i - 1]], list[order[i]]), [&] {
      const auto [first, second] = std::minmax(order[i - 1], order[i]);
      return "'" + entry(name, first) + "' and '" + entry(name, second) +
             "' overlap; views that are written lie apart";
    });
  }
}

}  // namespace

void refuse(const Call& call, const std::string& sentence) {
  throw Error(Errc::misuse, call.label() + " on rank " + std::to_string(call.rank()) + ": " +
                                sentence + call.where());
}

void refuse_timeout(const Call& call) { refuse(call, "a timeout is not negative"); }

void refuse_root(const Call& call, int root) {
  refuse(call, "there is no rank " + std::to_string(root) + " to be the root, ranks are 0 to " +
                   std::to_string(call.size() - 1));
}

bool reaches_too_far(const ConstTensorView& view) noexcept {
  constexpr auto furthest = static_cast<std::ptrdiff_t>(elements_max);
  if (view.count < 2) return false;
  std::ptrdiff_t last = 0;
  return __builtin_mul_overflow(view.count - 1, view.stride, &last) ||
         __builtin_mul_overflow(last, size_of(view.dtype), &last) || last > furthest ||
         last < -furthest;
}

void refuse_view(const Call& call, ConstTensorView view, const char* name) {
  if (size_of(view.dtype) == 0) {
    refuse(call, named(name) + "the number " + std::to_string(static_cast<int>(view.dtype)) +
                     " is no dtype");
  }
  const std::string count = elements_text(view.count);
  if (view.data == nullptr) refuse(call, named(name) + "a null pointer was given for " + count);
  if (view.count > elements_max) {
    refuse(call, named(name) + count + " are more than memory may hold");
  }
  if (view.place.cuda_device < -1) {
    refuse(call, named(name) + "a view's place is the host's memory, or a CUDA device's");
  }
  if (reaches_too_far(view)) {
    refuse(call, named(name) + count + " with a stride of " + std::to_string(view.stride) +
                     " reach further than memory may");
  }
  refuse(call, named(name) + "the memory of " + (view.count == 1 ? "this " : "these ") + count +
                   " was freed, or ends earlier: AddressSanitizer says so");
}

void check_same(const Call& call, const ConstTensorView& view, const ConstTensorView& other,
                std::size_t count, const char* name, const char* other_name) {
  check_view(call, other, other_name);
  require(call, other.dtype == view.dtype, [&] {
    return named(other_name) + "it has " + to_string(other.dtype) + " elements, but " +
           (*name == '\0' ? std::string("the other buffer") : "'" + std::string(name) + "'") +
           " has " + to_string(view.dtype);
  });
  require(call, other.count == count, [&] {
    const std::string needed =
        count == too_many ? "more elements than memory may hold" : elements_text(count);
    return named(other_name) + "a buffer of " + needed + " is needed, one of " +
           std::to_string(other.count) + " was given";
  });
}

void check_apart(const Call& call, const ConstTensorView& in, const ConstTensorView& out) {
  check_overlap(call, in, out, nullptr, "they lie apart");
}

void check_apart_or_same(const Call& call, const ConstTensorView& in, const ConstTensorView& out) {
  check_overlap(call, in, out, out.data, "they may be the same memory, else they lie apart");
}

void check_in_is_part(const Call& call, const ConstTensorView& in, const ConstTensorView& out,
                      std::size_t first) {
  check_overlap(call, in, out, part_of(out, first),
                "'in' may be this rank's part of 'out', else they lie apart");
}

void check_out_is_part(const Call& call, const ConstTensorView& in, const ConstTensorView& out,
                       std::size_t first) {
  const bool is_part = out.data == part_of(in, first);
  check_overlap(call, in, out, is_part ? in.data : nullptr,
                "'out' may be this rank's part of 'in', else they lie apart");
}

void check_list(const Call& call, const std::vector<ConstTensorView>& list,
                const ConstTensorView& part, ListUse use) {
  const bool is_written = use == ListUse::written;
  const char* const name = is_written ? "out" : "in";
  const char* const other = is_written ? "in" : "out";
  const auto me = static_cast<std::size_t>(call.rank());
  require_one_each(call, list, name);
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    const std::string which = entry(name, rank);
    check_same(call, part, list[rank], list[rank].count, other, which.c_str());
  }
  require(call, list[me].count == part.count, [&] {
    return "'" + std::string(other) + "' has " + elements_text(part.count) + ", but '" +
           entry(name, me) + "', this rank's part, has " + std::to_string(list[me].count);
  });
  if (is_written) check_disjoint(call, list, name);
  for (std::size_t rank = 0; rank < list.size(); ++rank) {
    const bool is_own = rank == me && list[rank].data == part.data;
    require(call, is_own || are_apart(list[rank], part), [&] {
      return "'" + std::string(other) + "' and '" + entry(name, rank) + "' overlap; '" + other +
             "' may be '" + entry(name, me) + "', else they lie apart";
    });
  }
}

void check_lists(const Call& call, const std::vector<ConstTensorView>& ins,
                 const std::vector<ConstTensorView>& outs) {
  require_one_each(call, ins, "in");
  require_one_each(call, outs, "out");
  const auto me = static_cast<std::size_t>(call.rank());
  for (std::size_t rank = 0; rank < ins.size(); ++rank) {
    check_same(call, ins[0], ins[rank], ins[rank].count, "in[0]", entry("in", rank).c_str());
    check_same(call, ins[0], outs[rank], outs[rank].count, "in[0]", entry("out", rank).c_str());
  }
  require(call, ins[me].count == outs[me].count, [&] {
    return "'" + entry("in", me) + "' has " + elements_text(ins[me].count) + ", but '" +
           entry("out", me) + "', which is for the same, has " + std::to_string(outs[me].count);
  });
  check_disjoint(call, outs, "out");
  // Sorted by their beginnings; of the views that are read, the furthest end so far counts.
  struct End {
    const std::byte* end = nullptr;
    std::size_t rank = 0;
  } read, written;
  std::vector<std::pair<const void*, std::size_t>> order;
  for (std::size_t i = 0; i < 2 * ins.size(); ++i) {
    const ConstTensorView& view = i < ins.size() ? ins[i] : outs[i - ins.size()];
    if (view.count > 0 && view.stride == 1) order.emplace_back(view.data, i);
  }
  std::sort(order.begin(), order.end());
  for (const auto& [begin, i] : order) {
    const bool is_written = i >= ins.size();
    const std::size_t rank = is_written ? i - ins.size() : i;
    const End& other = is_written ? read : written;
    require(call, other.end == nullptr || std::less_equal()(other.end, begin), [&] {
      return "'" + entry("in", is_written ? other.rank : rank) + "' and '" +
             entry("out", is_written ? rank : other.rank) + "' overlap; they lie apart";
    });
    const std::byte* const end =
        static_cast<const std::byte*>(begin) + (is_written ? outs[rank] : ins[rank]).bytes();
    End& own = is_written ? written : read;
    if (own.end == nullptr || std::less()(own.end, end)) own = {end, rank};
  }
}

std::size_t elements_before(const Call& call, std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.begin() + call.rank(), std::size_t{0});
}

std::size_t parts_together(int parts, std::size_t each) {
  const auto n = static_cast<std::size_t>(parts);
  return each > too_many / n ? too_many : n * each;
}

std::size_t check_counts(const Call& call, std::span<const std::size_t> counts, std::size_t own,
                         const char* which) {
  require(call, counts.size() == static_cast<std::size_t>(call.size()), [&] {
    return std::to_string(counts.size()) + " counts were given for " + plural(call.size(), "rank") +
           (counts.data() == nullptr ? ": the pointer is null" : "");
  });
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum = count > too_many - sum ? too_many : sum + count;
  require(call, counts[static_cast<std::size_t>(call.rank())] == own, [&] {
    return std::string("'") + which + "' has " + elements_text(own) +
           ", but this rank's count is " +
           std::to_string(counts[static_cast<std::size_t>(call.rank())]);
  });
  return sum;
}

}  // namespace dlaunch
