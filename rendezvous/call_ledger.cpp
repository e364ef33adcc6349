#include "rendezvous/call_ledger.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

using Call = CommunicatorCalls::Call;

std::string rank_text(const CommunicatorCalls& calls) {
  return "rank " + std::to_string(calls.rank);
}

/// The first call of one number that is not the same.
std::optional<std::string> differing_call(const CommunicatorCalls& one,
                                          const CommunicatorCalls& other) {
  auto theirs = other.last.begin();
  for (const Call& call : one.last) {
    while (theirs != other.last.end() && theirs->sequence < call.sequence) ++theirs;
    if (theirs == other.last.end()) break;
    if (theirs->sequence != call.sequence || theirs->digest == call.digest) continue;
    return rank_text(one) + " made " + call.text + ", but " + rank_text(other) + " made " +
           theirs->text;
  }
  return std::nullopt;
}

/// The sentence where the records of it are gone.
std::string differing_somewhere(const CommunicatorCalls& one, const CommunicatorCalls& other) {
  const bool have_both = !one.last.empty() && !other.last.empty();
  const std::uint64_t end =
      have_both ? std::max(one.last.front().sequence, other.last.front().sequence) : one.begun + 1;
  return rank_text(one) + " and " + rank_text(other) +
         " made different calls with a root before #" + std::to_string(end) +
         (one.name == "world" ? "" : " of '" + one.name + "'") + ", of which no record is left";
}

std::string find_disagreement(const CommunicatorCalls& one, const CommunicatorCalls& other) {
  auto found = differing_call(one, other);
  // Only the common calls are compared where one rank has made more.
  if (!found && one.count == other.count && one.digest != other.digest) {
    found = differing_somewhere(one, other);
  }
  return found ? "the ranks do not agree: " + *found : "";
}

}  // namespace

void CallLedger::add(CommunicatorCalls calls) {
  const auto known = communicators_.find(calls.communicator);
  if (known == communicators_.end()) {
    if (communicators_.size() >= communicators_max) return;
    const auto communicator = calls.communicator;
    communicators_.emplace(communicator, std::move(calls));
    return;
  }
  CommunicatorCalls& first = known->second;
  first.heard = first.heard || calls.heard;
  if (!first.disagreement.empty()) return;
  first.disagreement =
      calls.disagreement.empty() ? find_disagreement(first, calls) : std::move(calls.disagreement);
}

std::optional<std::string> CallLedger::disagreement() const {
  for (const auto& [communicator, calls] : communicators_) {
    if (!calls.heard && !calls.disagreement.empty()) return calls.disagreement;
  }
  return std::nullopt;
}

std::vector<CommunicatorCalls> CallLedger::kept() const {
  std::vector<CommunicatorCalls> all;
  for (const auto& [communicator, calls] : communicators_) all.push_back(calls);
  return all;
}

}  // namespace dlaunch::rendezvous
