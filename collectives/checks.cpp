#include "collectives/checks.hpp"

namespace dlaunch {

void refuse(const Call& call, const std::string& sentence) {
  throw Error(Errc::misuse, call.label() + " on rank " + std::to_string(call.rank()) + ": " +
                                sentence + call.where());
}

void check_root(const Call& call, int root) {
  require(call, root >= 0 && root < call.size(), [&] {
    return std::string("there is no rank " + std::to_string(root) +
                       " to be the root, ranks are 0 to " + std::to_string(call.size() - 1));
  });
}

void refuse_view(const Call& call, const ConstTensorView& view) {
  if (size_of(view.dtype) == 0) {
    refuse(call, "the number " + std::to_string(static_cast<int>(view.dtype)) + " is no dtype");
  }
  refuse(call, "a null pointer was given for " + std::to_string(view.count) + " elements");
}

void check_same(const Call& call, const ConstTensorView& view, const ConstTensorView& other,
                std::size_t count) {
  check_view(call, other);
  require(call, other.dtype == view.dtype, [&] {
    return std::string(std::string("one buffer has ") + to_string(view.dtype) +
                       " elements, the other " + to_string(other.dtype));
  });
  require(call, other.count == count, [&] {
    return std::string("a buffer of " + std::to_string(count) + " elements is needed, one of " +
                       std::to_string(other.count) + " was given");
  });
}

std::size_t check_counts(const Call& call, std::span<const std::size_t> counts, std::size_t own,
                         const char* which) {
  require(call, counts.size() == static_cast<std::size_t>(call.size()), [&] {
    return std::string(std::to_string(counts.size()) + " counts were given for " +
                       std::to_string(call.size()) + " ranks");
  });
  std::size_t sum = 0;
  for (const std::size_t count : counts) sum += count;
  require(call, counts[static_cast<std::size_t>(call.rank())] == own, [&] {
    return std::string(std::string("'") + which + "' has " + std::to_string(own) +
                       " elements, but this rank's count is " +
                       std::to_string(counts[static_cast<std::size_t>(call.rank())]));
  });
  return sum;
}

}  // namespace dlaunch
