#include "runtime/segment/call_ledger.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

using Call = CommunicatorCalls::Call;

std::string rank_text(const CommunicatorCalls& calls) {
  return "rank " + std::to_string(calls.rank);
}

/// The first two calls of one number that differ.
std::optional<std::pair<Call, Call>> differing_calls(const CommunicatorCalls& one,
                                                     const CommunicatorCalls& other) {
  auto theirs = other.last.begin();
  for (const Call& call : one.last) {
    while (theirs != other.last.end() && theirs->sequence < call.sequence) ++theirs;
    if (theirs == other.last.end()) break;
    if (theirs->sequence == call.sequence && theirs->digest != call.digest) {
      return std::pair{call, *theirs};
    }
  }
  return std::nullopt;
}

/// Whether two ranks agree. If one has made more calls, only the common ones are compared.
bool agree(const CommunicatorCalls& one, const CommunicatorCalls& other) {
  return !differing_calls(one, other) && (one.count != other.count || one.digest == other.digest);
}

/// " of 'world/split0'"; empty for the world.
std::string whose_text(const CommunicatorCalls& one, const CommunicatorCalls& other) {
  const std::string& name = one.name.empty() ? other.name : one.name;
  if (name.empty()) return " of one of many communicators";
  return name == "world" ? "" : " of " + in_quotes(name);
}

/// The sentence about a difference whose records are gone.
std::string differing_somewhere(const CommunicatorCalls& one, const CommunicatorCalls& other) {
  const bool have_both = !one.last.empty() && !other.last.empty();
  const std::uint64_t end =
      have_both ? std::max(one.last.front().sequence, other.last.front().sequence) : one.begun + 1;
  return rank_text(one) + " and " + rank_text(other) +
         " made different calls with a root before #" + std::to_string(end) +
         whose_text(one, other) + ", of which no record is left";
}

}  // namespace

std::uint64_t CallLedger::History::count() const {
  std::uint64_t ranks = 0;
  for (const auto& [rank, same] : told) ranks += same;
  return ranks;
}

void CallLedger::add(CommunicatorCalls calls) {
  if (!communicators_.contains(calls.communicator) && communicators_.size() >= communicators_max) {
    return;
  }
  Communicator& communicator = communicators_[calls.communicator];
  communicator.heard = communicator.heard || calls.heard;
  for (History& history : communicator.histories) {
    if (!agree(history.calls, calls)) continue;
    auto& kept = history.calls;
    if (kept.count != calls.count || kept.digest != calls.digest) return;
    history.told[calls.rank] = calls.ranks;
    if (calls.rank < kept.rank && !calls.last.empty()) kept = std::move(calls);
    return;
  }
  if (communicator.histories.size() == histories_max) {
    communicator.has_more = true;
    return;
  }
  const int rank = calls.rank;
  const auto ranks = calls.ranks;
  communicator.histories.push_back({std::move(calls), {{rank, ranks}}});
}

CallLedger::Difference CallLedger::find_difference(const Communicator& communicator) {
  std::vector<const History*> by_rank;
  std::uint64_t all = 0;
  for (const History& history : communicator.histories) {
    by_rank.push_back(&history);
    all += history.count();
  }
  std::sort(by_rank.begin(), by_rank.end(), [](const History* one, const History* other) {
    return one->calls.rank < other->calls.rank;
  });
  // Most ranks are right; without such a majority nobody knows who is.
  const History* right = nullptr;
  for (const History* history : by_rank) {
    if (!communicator.has_more && history->count() * 2 > all) right = history;
  }
  const History& wrong = right == by_rank[0] ? *by_rank[1] : *by_rank[0];
  const History& other = right != nullptr ? *right : *by_rank[1];
  const auto calls = differing_calls(wrong.calls, other.calls);
  if (!calls) return {wrong.calls.rank, differing_somewhere(wrong.calls, other.calls)};
  std::string whose = rank_text(other.calls);
  if (const auto more = other.count() - 1; right != nullptr && more > 0) {
    whose += " and " + std::to_string(more) + (more == 1 ? " other" : " others");
  }
  return {wrong.calls.rank, rank_text(wrong.calls) + " made " + calls->first.text + ", but " +
                                whose + " made " + calls->second.text};
}

std::optional<CallLedger::Difference> CallLedger::first_difference() const {
  for (const auto& [id, communicator] : communicators_) {
    if (communicator.heard || communicator.histories.size() < 2) continue;
    return find_difference(communicator);
  }
  return std::nullopt;
}

std::optional<std::string> CallLedger::disagreement() const {
  const auto difference = first_difference();
  if (!difference) return std::nullopt;
  return "the ranks do not agree: " + difference->text;
}

std::optional<int> CallLedger::odd_rank() const {
  const auto difference = first_difference();
  if (!difference) return std::nullopt;
  return difference->rank;
}

std::vector<Count> CallLedger::counts(std::uint64_t communicator, std::uint64_t sequence) const {
  const auto known = communicators_.find(communicator);
  if (known == communicators_.end() || known->second.has_more) return {};
  std::vector<Count> counts;
  for (const History& history : known->second.histories) {
    const auto& last = history.calls.last;
    const auto call = std::find_if(last.begin(), last.end(),
                                   [&](const Call& c) { return c.sequence == sequence; });
    if (call == last.end()) continue;
    for (const auto& [rank, same] : history.told) {
      counts.push_back({{rank, call->digest}, same, communicator, sequence});
    }
  }
  return counts;
}

std::vector<CommunicatorCalls> CallLedger::kept() const {
  std::vector<CommunicatorCalls> all;
  for (const auto& [id, communicator] : communicators_) {
    for (const History& history : communicator.histories) {
      CommunicatorCalls& calls = all.emplace_back(history.calls);
      calls.ranks = static_cast<std::uint32_t>(history.count());
      calls.heard = communicator.heard;
    }
  }
  return all;
}

}  // namespace dlaunch
