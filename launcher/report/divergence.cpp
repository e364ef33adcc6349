#include "launcher/report/divergence.hpp"

#include <algorithm>
#include <map>

namespace dlaunch::launcher {
namespace {

using Made = Divergence::Made;

bool is_collective(const FlightCall& call) {
  return call.sequence != 0 && call.kind != Flight::Kind::aside;
}

std::map<CallId, std::vector<Made>> collectives(std::span<const RankLog> ranks) {
  std::map<CallId, std::vector<Made>> calls;
  for (const auto& [rank, log] : ranks) {
    for (const auto& call : log->calls) {
      if (is_collective(call)) {
        calls[{call.communicator, call.sequence}].push_back({rank, &call});
      }
    }
  }
  return calls;
}

Clock::time_point began(const std::vector<Made>& made) {
  return std::ranges::min_element(made, {}, [](const Made& m) { return m.call->began; })
      ->call->began;
}

}  // namespace

bool has_returned(const FlightCall& call) { return call.ended && !call.failed; }

CallPart part_in(const FlightLog& log, const CallId& call, const FlightCall::Terms& terms) {
  const auto made = std::ranges::find_if(log.calls, [&](const FlightCall& own) {
    return is_collective(own) && own.communicator == call.communicator &&
           own.sequence == call.sequence;
  });
  if (made != log.calls.end()) {
    return {made->terms() == terms ? CallPart::Kind::came : CallPart::Kind::other, &*made};
  }
  const FlightGroup* group = log.group_of(call.communicator);
  if (group == nullptr) return {};
  return {group->begun < call.sequence ? CallPart::Kind::absent : CallPart::Kind::came};
}

std::optional<Divergence> first_divergence(std::span<const RankLog> ranks) {
  std::map<std::uint64_t, std::vector<RankLog>> members;
  for (const auto& rank : ranks) {
    for (const auto& group : rank.log->groups) members[group.communicator].push_back(rank);
  }
  std::optional<Divergence> first;
  for (auto& [call, made] : collectives(ranks)) {
    if (first && began(made) >= began(first->made)) continue;
    Divergence found{call, false, made, {}};
    for (const auto& [rank, log] : members[call.communicator]) {
      const auto part = part_in(*log, call, made.front().call->terms());
      if (part.kind == CallPart::Kind::absent) found.absent.push_back(rank);
      found.differs = found.differs || part.kind == CallPart::Kind::other;
    }
    if (found.differs || !found.absent.empty()) first = std::move(found);
  }
  return first;
}

std::optional<std::pair<Made, Made>> untold_difference(std::span<const RankLog> ranks) {
  for (const auto& [call, made] : collectives(ranks)) {
    const Made& first = made.front();
    for (const Made& other : made) {
      // Two ranks that are both still in their calls, or failed in them, report it themselves.
      if (!other.call->agrees_with(*first.call) &&
          (has_returned(*other.call) || has_returned(*first.call))) {
        return std::pair(first, other);
      }
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch::launcher
