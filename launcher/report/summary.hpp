#pragma once

#include "launcher/report/error_file.hpp"
#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/os/exit_status.hpp"
#include "runtime/base/text/wall_clock.hpp"

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
  std::string error_file;      ///< Path, where the worker wrote one; else empty.
  std::optional<ErrorReport> error;
  std::vector<std::string> last_lines;  ///< The last lines of its stderr.
  bool lines_of_both = false;           ///< They are those of its stdout, too.

  bool failed() const { return !status.succeeded() && !stopped_by_us; }
};

struct FailureSummary {
  std::string program;
  std::vector<WorkerEnd> ends;    ///< In the order in which they were observed.
  std::optional<int> root_cause;  ///< One of these ranks.
  std::string why;                ///< Why it is to blame, where its end does not say it.
  std::string elsewhere;          ///< The event that ended the job, where none of these ranks did,
  std::optional<rendezvous::RankDetails> elsewhere_details;  ///< and what is known of that rank.
  bool together = false;               ///< That was what several ranks did, of which none failed.
  int attempt = 0;                     ///< How often the workers had been started again.
  int max_restarts = 0;                ///< How often they may be.
  bool tolerated = false;              ///< The job ended well all the same.
  std::string flight_file;             ///< The file of the ranks' last calls.
  std::chrono::seconds utc_offset{0};  ///< Times are shown in this zone.
};

/// The bordered block, ending in a newline; empty where nobody failed.
std::string failure_summary(const FailureSummary& summary);

}  // namespace dlaunch::launcher
