#include "launcher/watch/core/progress.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher {
namespace {

/// A rank counts as working if it uses at least one part in so many of a processor: library threads
/// that look around now and then use less.
constexpr int work_share = 20;
/// If two looks are further apart than this, this process stood still.
constexpr auto late_look = std::chrono::seconds(3);
/// The shortest pause between two questions to all nodes.
constexpr auto pause_min = std::chrono::milliseconds(100);
constexpr std::size_t groups_told_max = 8;

/// Whether a rank has gone on between two looks, `passed` apart.
bool goes_on(const WorkSigns& before, const WorkSigns& now, Clock::duration passed) {
  if (now.ended != before.ended || now.calls != before.calls) return true;
  if (now.ended || now.calls > 0) return false;
  // The sum may shrink: when a process that it started ends, its time may be counted elsewhere.
  const auto worked = std::max(now.cpu_time - before.cpu_time, std::chrono::milliseconds(0));
  return now.output_bytes != before.output_bytes ||
         (worked.count() > 0 && worked * work_share >= passed);
}

}  // namespace

void ProgressClock::look(const std::vector<WorkSigns>& ranks, Clock::time_point now) {
  const auto passed = now - looked_;
  looked_ = now;
  bool progress = false;
  for (const auto& rank : ranks) {
    const auto [known, first] = last_.try_emplace(rank.rank, rank);
    progress |= !first && goes_on(known->second, rank, passed);
    known->second = rank;
  }
  if (progress) seen_ = now;
  const auto idle = idle_for(passed);
  seen_ = std::min(now, seen_ + idle);
  if (declared_) declared_ = std::min(now, *declared_ + idle);
}

/// The part of the time since the last look that counts against nobody.
Clock::duration ProgressClock::idle_for(Clock::duration passed) const {
  return suspended_ || passed > late_look ? passed : Clock::duration::zero();
}

/// May be called after this process stood still, before the look that is then due.
NodeProgress ProgressClock::at(Clock::time_point now) const {
  const auto counts_until = now - idle_for(now - looked_);
  NodeProgress node;
  node.unseen = std::max(counts_until - seen_, Clock::duration::zero());
  if (declared_) node.undeclared = std::max(counts_until - *declared_, Clock::duration::zero());
  return node;
}

ProgressJudgement judge_progress(const JobProgress& job, int nodes, Clock::duration limit) {
  std::optional<Clock::duration> unseen, undeclared;
  bool some_run = false;
  const auto least = [](auto& known, Clock::duration time) {
    known = std::min(known.value_or(time), time);
  };
  for (const auto& [rank, node] : job) {
    some_run |= !node.doing.empty();
    least(unseen, node.unseen);
    if (node.undeclared) least(undeclared, *node.undeclared);
  }
  const auto without = undeclared ? *undeclared : unseen.value_or(Clock::duration::zero());
  const bool all_know = static_cast<int>(job.size()) == nodes;
  if (without >= limit && all_know && some_run) return {.stalled = true};
  // The job cannot have stalled before `left` is over; a silent node is asked again sooner.
  const auto left = without < limit ? limit - without : limit / 10;
  return {.look_again_after = std::max<Clock::duration>(left, pause_min)};
}

std::string stall_sentence(const JobProgress& job, Clock::duration limit) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const auto& [node, progress] : job) {
    for (const auto& [rank, doing] : progress.doing) {
      const auto alike =
          std::ranges::find(groups, doing, [](const auto& group) { return group.first; });
      if (alike != groups.end()) {
        alike->second.push_back(rank);
      } else {
        groups.push_back({doing, {rank}});
      }
    }
  }
  std::string text = "no rank has made progress for " + duration_text(limit);
  if (groups.empty()) return text;
  return text + ": " + listed(groups, groups_told_max, [](const auto& group) {
           return ranks_text(group.second) + " (" + group.first + ")";
         });
}

}  // namespace dlaunch::launcher
