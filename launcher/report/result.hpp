#pragma once

#include "launcher/plan/plan.hpp"
#include "launcher/report/summary.hpp"
#include "launcher/report/timings.hpp"
#include "launcher/request/job_spec.hpp"

#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// One start of the workers and how it ended.
struct AttemptResult {
  LaunchPlan plan;
  WallClock::time_point started{};
  WallClock::time_point ended{};
  std::vector<WorkerEnd> ends;     ///< In the order observed; a worker that never started has none.
  std::optional<Verdict> verdict;  ///< The job's, if it is known; unset if nobody failed.
  std::string stall;               ///< Why it was ended as stalled; else empty.
  std::string flight_file;         ///< Empty where none was written.
  std::string stacks_file;         ///< The same.
  std::string stacks_headline;     ///< Where the ranks were, by that file.
  std::optional<MemoryKills> memory_kills;
  std::string reader_gone;  ///< "stdout" where dlaunch's own has lost its reader; else empty.
};

/// The whole story of a job on this node, for --result.
struct JobResult {
  std::string job;
  std::string host;
  std::vector<AttemptResult> attempts;
  std::string outcome;  ///< "succeeded", "failed", "stopped by SIGTERM".
  int exit_code = 0;
  std::string reason;  ///< Why it is not 0, in the terminal's words; empty where that is not known.
  WallClock::time_point started{};
  WallClock::time_point ended{};
  std::vector<Phase> timings = {};  ///< Of the last attempt; empty if nothing was started.
};

/// JSON, indented by 2, ending in a newline; no secret and no environment in it.
std::string to_json(const JobResult& result, const JobSpec& spec);

}  // namespace dlaunch::launcher
