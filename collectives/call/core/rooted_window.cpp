#include "collectives/call/core/rooted_window.hpp"

#include <cstring>

namespace dlaunch {

using Difference = RootedWindow::Difference;

std::optional<Difference> RootedWindow::find_difference(BytesView theirs) const noexcept {
  constexpr std::size_t each = sizeof(Made);
  for (std::size_t i = 0; i < calls_max && (i + 1) * each <= theirs.size(); ++i) {
    if (std::memcmp(&calls_[i], theirs.data() + i * each, each) == 0) continue;
    Difference found{calls_[i], {}};
    std::memcpy(&found.there, theirs.data() + i * each, each);
    return found;
  }
  return std::nullopt;
}

}  // namespace dlaunch
