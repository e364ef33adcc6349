#pragma once

#include <dlaunch/error.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Judges whether a job goes on (docs/decisions/0046) by the signs of a rank's work that can be
/// seen from outside. Pure, reads no clock, not thread-safe.
namespace dlaunch::launcher {

/// The signs of a rank's work so far.
struct WorkSigns {
  int rank = 0;
  bool ended = false;
  std::uint64_t calls = 0;         ///< Calls begun and ended, by its record; 0: none can be seen.
  std::uint64_t output_bytes = 0;  ///< Bytes of its output that passed through the launcher.
  std::chrono::milliseconds cpu_time{};  ///< Its own, and that of processes it has started.
};

/// How long a node's ranks have shown no progress.
struct NodeProgress {
  Clock::duration unseen{};  ///< Since a rank was last seen to go on.
  /// Since one of them last declared progress; unset: none has.
  std::optional<Clock::duration> undeclared = std::nullopt;
  /// The ranks that run, and what each does, up to `doing_max`.
  std::vector<std::pair<std::int32_t, std::string>> doing = {};
  static constexpr std::size_t doing_max = 64;
};

/// When the ranks of one node last went on.
class ProgressClock {
 public:
  /// An attempt's workers have been started.
  explicit ProgressClock(Clock::time_point now) : looked_(now), seen_(now) {}

  /// A rank goes on by its calls, once it has made one; before that by what it writes, and by at
  /// least a twentieth of a processor's time between two looks. A late look, after this process or
  /// its machine stood still, counts against nobody.
  void look(const std::vector<WorkSigns>& ranks, Clock::time_point now);
  /// A rank has declared progress.
  void declare(Clock::time_point now) { declared_ = now; }
  /// The user stops the job: the time until it goes on does not count.
  void suspend(bool suspended) { suspended_ = suspended; }

  /// Without `doing`.
  NodeProgress at(Clock::time_point now) const;

 private:
  Clock::duration idle_for(Clock::duration passed) const;

  Clock::time_point looked_, seen_;
  std::optional<Clock::time_point> declared_;
  bool suspended_ = false;
  std::map<int, WorkSigns> last_;
};

/// By node rank; a node that did not answer is missing.
using JobProgress = std::map<int, NodeProgress>;

/// The judgement from the facts of all nodes.
struct ProgressJudgement {
  bool stalled = false;
  Clock::duration look_again_after{};  ///< If it has not stalled.
};
/// A job has stalled when none of its nodes has gone on for the limit. Once one of them has
/// declared progress, only declared progress counts. A silent node may be going on, and a job
/// without a running rank waits for something else: neither has stalled.
ProgressJudgement judge_progress(const JobProgress& job, int nodes, Clock::duration limit);

/// "no rank has made progress for 10 min: ranks 0-2 (in all_reduce #3 [train.cpp:50] for 10 min,
/// waiting for rank 3), rank 3 (in no call for 10 min)".
std::string stall_sentence(const JobProgress& job, Clock::duration limit);

}  // namespace dlaunch::launcher
