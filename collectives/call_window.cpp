#include "collectives/algorithms/algorithms.hpp"
#include "collectives/call.hpp"

#include <algorithm>
#include <cstring>

/// What ranks compare at the end of a window of calls in which nobody waits for all.
namespace dlaunch {

std::optional<std::uint64_t> RootedWindow::find_difference(BytesView theirs) const noexcept {
  constexpr std::size_t each = sizeof(Made);
  for (std::size_t i = 0; i < calls_max && (i + 1) * each <= theirs.size(); ++i) {
    if (std::memcmp(&calls_[i], theirs.data() + i * each, each) != 0) return calls_[i].sequence;
  }
  return std::nullopt;
}

void Call::confirm(const RootedWindow& window) {
  algorithms::tell_by_dissemination(*this, window.bytes(), [&](int from, BytesView theirs) {
    const auto sequence = window.find_difference(theirs);
    if (!sequence) return;
    const int world_rank = setting_.group.world_rank(from);
    const auto lock = setting_.mesh.lock();
    const Busy busy(*this);
    throw_disagreement(earlier_disagreement(*sequence, world_rank),
                       disagreed_with(world_rank, std::nullopt), *sequence);
  });
}

}  // namespace dlaunch
