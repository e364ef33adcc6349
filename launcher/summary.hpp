#pragma once

#include "launcher/error_file.hpp"
#include "launcher/exit_status.hpp"
#include "launcher/wall_clock.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// One worker's end, as the summary tells it.
struct WorkerEnd {
  int rank = 0;
  int local_rank = 0;
  std::string host;
  pid_t pid = 0;
  ExitStatus status;
  WallClock::time_point time{};
  bool stopped_by_us = false;  ///< It ended because we ended the attempt.
  bool peer_lost = false;      ///< It failed because of another rank: never the root cause.
  bool member = false;         ///< It used the runtime, which tells of lost peers itself.
  std::string error_file;      ///< Path, where the worker wrote one; else empty.
  std::optional<ErrorReport> error;
  std::vector<std::string> last_lines;  ///< The last lines of its stderr.
  bool lines_of_both = false;           ///< They are those of its stdout, too.

  bool failed() const { return !status.succeeded() && !stopped_by_us; }
};

/// Who exited with 0 before the others.
struct LeftEarly {
  std::string who;               ///< "rank 1", "ranks 1,3", "rank 3 on h2".
  WallClock::time_point time{};  ///< Of the last of them.
};

struct FailureSummary {
  std::string program;
  std::vector<WorkerEnd> ends;    ///< In the order in which they were observed.
  std::optional<int> root_cause;  ///< A rank; unset: root_cause_of(ends).
  std::string elsewhere;          ///< What ended the job, where none of these ranks did.
  /// The first on another node that exited with 0, and when we heard of it.
  std::optional<LeftEarly> left_elsewhere;
  int attempt = 0;                     ///< How often the workers had been started again.
  int max_restarts = 0;                ///< How often they may be.
  bool tolerated = false;              ///< The job ended well all the same.
  std::string flight_file;             ///< Where the ranks' last calls were written.
  std::chrono::seconds utc_offset{0};  ///< Times are shown in this zone.
};

/// The rank to blame: the first that failed by itself, neither stopped by us nor for the loss of a
/// peer. Where all failures are such losses: the first that left with 0 before them. Failing that,
/// the first failure. nullopt where nobody failed.
std::optional<int> root_cause_of(const std::vector<WorkerEnd>& ends);

/// Who exited with 0, by itself, before `root` failed for a reason of which nothing is known: a
/// program that does not use the runtime fails so when it needs a rank that is gone. Those of this
/// node, else the one of another; nullopt where there is none.
std::optional<LeftEarly> left_before(const WorkerEnd& root, const std::vector<WorkerEnd>& ends,
                                     const std::optional<LeftEarly>& elsewhere);
/// "rank 1 had exited with 0, 0.1 s before", "ranks 1,3 had exited with 0, the last 0.1 s before".
std::string left_before_sentence(const LeftEarly& left, const WorkerEnd& root);

/// The bordered block, ending in a newline; empty where nobody failed.
std::string failure_summary(const FailureSummary& summary);

/// "0-3,5" for sorted or unsorted ranks.
std::string rank_list(std::vector<int> ranks);

}  // namespace dlaunch::launcher
