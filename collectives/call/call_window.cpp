#include "collectives/algorithms/messages/messages.hpp"
#include "collectives/call/call.hpp"

#include <algorithm>
#include <cstring>

/// What ranks compare at the end of a window of calls in which nobody waits for all.
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

void Call::confirm(const RootedWindow& window) {
  algorithms::tell_by_dissemination(*this, window.bytes(), [&](int from, BytesView theirs) {
    const auto differ = window.find_difference(theirs);
    if (!differ) return;
    const std::uint64_t sequence = differ->here.sequence;
    const int world_rank = setting_.group.world_rank(from);
    const auto lock = setting_.mesh.lock();
    const Busy busy(*this);
    Claim claim = disagreed_with(world_rank, std::nullopt);
    if (differ->there.sequence == sequence) {
      claim.communicator = setting_.group.id;
      claim.sequence = sequence;
      claim.votes = {{setting_.mesh.rank(), differ->here.digest},
                     {world_rank, differ->there.digest}};
    }
    throw_disagreement(earlier_disagreement(sequence, world_rank), std::move(claim), sequence);
  });
}

}  // namespace dlaunch
