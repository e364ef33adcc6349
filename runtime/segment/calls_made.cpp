#include "runtime/segment/calls_made.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace dlaunch {
namespace {

/// Whether ranks may differ in the call: calls without a root do not return if they do.
bool may_differ(const FlightCall& call) {
  const bool has_returned = call.ended && !call.failed;
  return call.sequence != 0 && call.kind == Flight::Kind::call &&
         (call.place >= 0 || !has_returned);
}

CommunicatorCalls::Call as_made(const FlightCall& call, const FlightNames& names) {
  Flight::Call made;
  made.what = Flight::Call::pack(call.op, call.dtype, call.reduction, call.place);
  made.sequence = call.sequence;
  made.count = call.count;
  made.argument = call.argument;
  return {call.sequence, Flight::digest_of(0, made), names.full_and_site(call)};
}

/// The counts of a rank's calls, without its last calls.
CommunicatorCalls counts_of(const RankFlight& rank, const FlightGroup& group) {
  CommunicatorCalls calls;
  calls.communicator = group.id;
  calls.name = group.name;
  calls.rank = rank.rank;
  calls.begun = group.begun;
  calls.count = group.rooted;
  calls.digest = group.digest;
  calls.heard = group.heard;
  return calls;
}

std::vector<CommunicatorCalls::Call> last_calls(const RankFlight& rank, const FlightGroup& group) {
  std::vector<CommunicatorCalls::Call> last;
  const FlightNames names{*rank.ring};
  for (const auto& call : rank.log->calls) {
    if (call.communicator == group.communicator && may_differ(call)) {
      last.push_back(as_made(call, names));
    }
  }
  return last;
}

/// The communicators in which there was a call.
std::vector<const FlightGroup*> groups_of(const FlightLog& log) {
  std::vector<const FlightGroup*> all;
  for (const auto* groups : {&log.groups, &log.others}) {
    for (const auto& group : *groups) {
      if (group.begun != 0) all.push_back(&group);
    }
  }
  return all;
}

/// The facts that are kept while a node's ranks are looked at.
struct Known {
  std::uint64_t count = 0, digest = 0;  ///< The first rank's.
  int absent = 0;                       ///< Members that have not been looked at.
};

void keep_last(std::vector<CommunicatorCalls::Call>& calls, std::size_t most) {
  if (calls.size() <= most) return;
  calls.erase(calls.begin(), calls.end() - static_cast<std::ptrdiff_t>(most));
}

}  // namespace

std::vector<CommunicatorCalls> calls_made(std::span<const RankFlight> ranks, std::size_t calls) {
  CallLedger ledger;
  std::map<std::uint64_t, Known> communicators;
  for (const auto& rank : ranks) {
    if (rank.ring == nullptr || rank.log == nullptr) continue;
    std::set<std::uint64_t> seen;
    for (const auto* group_at : groups_of(*rank.log)) {
      const FlightGroup& group = *group_at;
      const auto [place, is_new] =
          communicators.try_emplace(group.id, Known{group.rooted, group.digest, group.size});
      Known& known = place->second;
      CommunicatorCalls made = counts_of(rank, group);
      // Most ranks agree, and their records need not be read.
      if (is_new || known.count != group.rooted || known.digest != group.digest) {
        made.last = last_calls(rank, group);
      }
      // If a worker ran one program after the other, it is not known which of its calls met
      // others'.
      const bool is_first = seen.insert(group.id).second;
      made.heard = made.heard || !is_first;
      ledger.add(std::move(made));
      if (is_first) --known.absent;
    }
  }
  auto kept = ledger.kept();
  std::map<std::uint64_t, int> histories;
  for (const auto& made : kept) ++histories[made.communicator];
  std::vector<CommunicatorCalls> told;
  for (auto& made : kept) {
    const bool is_theirs =
        communicators[made.communicator].absent > 0 && (made.count > 0 || !made.last.empty());
    if (histories[made.communicator] == 1 && !is_theirs) continue;
    keep_last(made.last, calls);
    told.push_back(std::move(made));
  }
  return told;
}

}  // namespace dlaunch
