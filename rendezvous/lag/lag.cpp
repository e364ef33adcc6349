#include "rendezvous/lag/lag.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace dlaunch::rendezvous {
namespace {

/// How long an agent takes to notice and report a change.
constexpr auto tells_within = std::chrono::seconds(1);
/// The most communicators of the whole world against which a rank that has not reported them is
/// compared.
constexpr std::size_t whole_max = 8;

/// A collective that was the last one begun by some rank.
struct Step {
  Clock::time_point since;  ///< When the first rank began it.
  std::int64_t ranks = 0;
  const std::string* call = nullptr;  ///< Its name, if some rank is in it or came from it.
};

struct Communicator {
  std::int32_t size = 0;
  std::map<std::uint64_t, Step> steps;  ///< By number.
  /// By number: when the first rank was at this one or beyond.
  std::vector<std::pair<std::uint64_t, Clock::time_point>> reached;

  std::uint64_t foremost() const { return steps.rbegin()->first; }
  void order() {
    auto since = Clock::time_point::max();
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      since = std::min(since, step->second.since);
      reached.emplace_back(step->first, since);
    }
    std::ranges::reverse(reached);
  }
};
using Communicators = std::unordered_map<std::uint64_t, Communicator>;

Communicators communicators_of(std::span<const NodeCalls> nodes) {
  Communicators all;
  for (const auto& node : nodes) {
    for (const auto& ranks : *node.calls) {
      for (const auto& reached : ranks.reached) {
        auto& communicator = all[reached.communicator];
        communicator.size = reached.size;
        const auto since = node.told - reached.age;
        const auto [at, is_new] = communicator.steps.try_emplace(reached.sequence, Step{since});
        Step& step = at->second;
        if (!is_new) step.since = std::min(step.since, since);
        step.ranks += ranks.ranks;
        const bool is_it = ranks.communicator == reached.communicator &&
                           ranks.sequence == reached.sequence && !ranks.call.empty();
        if (is_it && step.call == nullptr) step.call = &ranks.call;
      }
    }
  }
  for (auto& [id, communicator] : all) communicator.order();
  return all;
}

/// `known`: the last time at which these ranks are known not to have gone beyond `sequence`.
RankLag lag_in(const Communicator& communicator, std::uint64_t id, std::uint64_t sequence,
               Clock::time_point known) {
  const auto beyond = std::ranges::upper_bound(communicator.reached, sequence, {},
                                               &std::pair<std::uint64_t, Clock::time_point>::first);
  if (beyond == communicator.reached.end() || beyond->second >= known) return {};
  return {communicator.foremost() - sequence, known - beyond->second, id};
}

const RankCalls::Reached* reached_in(const RankCalls& ranks, std::uint64_t communicator) {
  const auto found =
      std::ranges::find(ranks.reached, communicator, &RankCalls::Reached::communicator);
  return found == ranks.reached.end() ? nullptr : &*found;
}

RankLag longest_lag(const RankCalls& ranks, const Communicators& all,
                    const std::vector<std::uint64_t>& whole, Clock::time_point known) {
  RankLag longest;
  const auto take = [&](RankLag lag) {
    if (lag.time > longest.time) longest = lag;
  };
  for (const auto& reached : ranks.reached) {
    const auto& communicator = all.at(reached.communicator);
    take(lag_in(communicator, reached.communicator, reached.sequence, known));
  }
  // Every rank is a member of these. A rank that has reported as many as it may can be in more.
  if (ranks.reached.size() >= reached_max) return longest;
  for (const auto id : whole) {
    if (reached_in(ranks, id) == nullptr) take(lag_in(all.at(id), id, 0, known));
  }
  return longest;
}

}  // namespace

std::vector<const RanksSeen*> JobLag::behind() const {
  std::vector<const RanksSeen*> found;
  for (const auto& each : ranks) {
    if (each.lag.is_behind()) found.push_back(&each);
  }
  std::ranges::stable_sort(found, std::greater{}, [](const auto* each) { return each->lag.time; });
  return found;
}

std::string name_of(const RanksSeen& seen, std::string_view node) {
  return ranks_text(seen.first_rank, seen.calls->ranks) + " on node " + std::string(node);
}

std::string doing_text(const RanksSeen& seen) {
  const RankCalls& ranks = *seen.calls;
  const std::string after = ranks.call.empty() ? "" : ", after " + ranks.call;
  switch (ranks.state) {
    case RankCalls::State::none:
      return "in no call yet";
    case RankCalls::State::between:
      return "in no call for " + age_text(seen.age) + after;
    case RankCalls::State::in_call:
    case RankCalls::State::waits:
      return "in " + ranks.call + " for " + age_text(seen.age);
    case RankCalls::State::stopped:
      return "stopped by a signal" + (ranks.call.empty() ? "" : ", last seen in " + ranks.call);
    case RankCalls::State::ended:
      return "ended" + after;
  }
  return "";
}

std::string JobLag::sentence(const RanksSeen& seen, std::string_view node) const {
  const std::string text = name_of(seen, node) + (seen.calls->ranks == 1 ? " is " : " are ") +
                           plural(static_cast<long>(seen.lag.calls), "call") + " behind, for " +
                           age_text(seen.lag.time) + ": " + doing_text(seen);
  const auto first = std::ranges::find(foremost, seen.lag.communicator, &Foremost::communicator);
  if (first == foremost.end()) return text;
  return text + "; " + plural(static_cast<long>(first->ranks), "rank") +
         (first->ranks == 1 ? " has" : " have") + " come to " + first->call;
}

JobLag judge_lag(std::span<const NodeCalls> nodes, int world_size) {
  const Communicators all = communicators_of(nodes);
  JobLag job;
  std::vector<std::uint64_t> whole;
  for (const auto& [id, communicator] : all) {
    if (communicator.size == world_size && whole.size() < whole_max) whole.push_back(id);
    const auto& [sequence, step] = *communicator.steps.rbegin();
    job.foremost.push_back({id, sequence,
                            step.call != nullptr ? *step.call : "call #" + std::to_string(sequence),
                            step.ranks});
  }
  std::ranges::sort(job.foremost, std::greater{}, [](const Foremost& each) {
    return std::tuple(each.ranks, each.sequence, each.communicator);
  });
  // A node's last report holds until it sends another, save for changes that it may be about to
  // report.
  const auto late = calls_told_every(static_cast<int>(nodes.size())) + tells_within;
  for (const auto& node : nodes) {
    const auto known = std::max(node.told, node.heard - late);
    job.judged.push_back(node.calls);
    int rank = node.first_rank;
    for (const auto& ranks : *node.calls) {
      const auto since = std::max(node.heard, node.told) - (node.told - ranks.age);
      job.ranks.push_back(
          {node.node_rank, rank, &ranks, since, longest_lag(ranks, all, whole, known)});
      if (job.ranks.back().lag.is_behind()) job.ranks_behind += ranks.ranks;
      rank += ranks.ranks;
    }
  }
  return job;
}

}  // namespace dlaunch::rendezvous
