#include "launcher/watch/core/stopped_ranks.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

/// The most ranks that are named; the others are counted.
constexpr std::size_t stopped_told_max = 8;

std::string stopped_text(const std::vector<const RankSight*>& ranks, Clock::duration age) {
  const std::size_t told = std::min(ranks.size(), stopped_told_max);
  std::string text, pids;
  for (std::size_t i = 0; i < told; ++i) {
    const std::string pid = std::to_string(ranks[i]->pid);
    text +=
        (i == 0 ? "" : ", ") + ("rank " + std::to_string(ranks[i]->rank)) + " (pid " + pid + ")";
    pids += " " + pid;
  }
  if (told < ranks.size()) text += " and " + std::to_string(ranks.size() - told) + " more";
  return text + (ranks.size() == 1 ? " has" : " have") + " been stopped by a signal for " +
         age_text(age) + "; to let " + (ranks.size() == 1 ? "it" : "them") + " go on: kill -CONT" +
         pids;
}

}  // namespace

std::optional<std::string> StoppedRanks::look(const std::vector<RankSight>& ranks,
                                              Clock::time_point now) {
  std::vector<const RankSight*> due;
  Clock::duration longest{};
  for (const auto& rank : ranks) {
    // A rank that is stopped by a debugger is not reported.
    if (rank.state != RankSight::State::stopped || rank.traced) {
      stops_.erase(rank.rank);
      continue;
    }
    Stop& stop = stops_.try_emplace(rank.rank, Stop{now}).first->second;
    if (suspended_) stop.told = true;
    const auto age = now - stop.since;
    const auto limit = rank.member ? 2 * limit_ : limit_;
    if (stop.told || limit_ <= limit_.zero() || age < limit) continue;
    stop.told = true;
    due.push_back(&rank);
    longest = std::max(longest, age);
  }
  if (due.empty()) return std::nullopt;
  return stopped_text(due, longest);
}

}  // namespace dlaunch::launcher
