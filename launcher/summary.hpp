#pragma once

#include "launcher/exit_status.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

using WallClock = std::chrono::system_clock;

/// What a worker wrote into its error.json.
struct ErrorReport {
  std::string message;
  std::string callstack;  ///< Empty where it gave none.
  std::optional<WallClock::time_point> time;

  bool operator==(const ErrorReport&) const = default;
};

/// Reads error.json in both shapes PyTorch writes; nullopt for anything else. Never throws.
std::optional<ErrorReport> parse_error_file(std::string_view text);

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
};

struct FailureSummary {
  std::string program;
  std::vector<WorkerEnd> ends;    ///< In the order in which they were observed.
  std::optional<int> root_cause;  ///< A rank; unset: root_cause_of(ends).
  int attempt = 0;
  int max_restarts = 0;
  std::chrono::seconds utc_offset{0};  ///< Times are shown in this zone.
};

/// The rank to blame: the first that failed by itself, neither stopped by us nor for the loss of a
/// peer; failing that, the first that exited 0 before others failed for its loss; else the first
/// failure. nullopt where nobody failed.
std::optional<int> root_cause_of(const std::vector<WorkerEnd>& ends);

/// The bordered block, ending in a newline; empty where nobody failed.
std::string failure_summary(const FailureSummary& summary);

/// The zone this host shows times in.
std::chrono::seconds local_utc_offset(WallClock::time_point at);

}  // namespace dlaunch::launcher
