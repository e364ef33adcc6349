#pragma once

#include <dlaunch/error.hpp>

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch::launcher {

/// A process' variables, by name.
using RankVariables = std::map<std::string, std::string, std::less<>>;

/// A rank that may keep PyTorch's flight recorder.
struct RecordingRank {
  int rank = 0;
  RankVariables variables;  ///< Those that it was started with.
  bool has_nccl = false;
  Clock::time_point since = Clock::time_point::min();  ///< When its process began, if it is known.
};

/// The file into which a rank's flight recorder was dumped.
struct FlightDump {
  int rank = 0;
  std::string file;
  Clock::duration age{};
  /// "all_reduce #12 of default_pg, scheduled", where the file is JSON; else empty.
  std::string last_open;
};

/// The dumps that the ranks with TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) have
/// written, or those with NCCL for which nobody has set it, since PyTorch 2.8 records by itself
/// then. A file that is older than its rank is another job's. A rank that was started with
/// TORCH_NCCL_DEBUG_INFO_PIPE_FILE is asked for a new dump through that pipe, and waited for until
/// the deadline. Pickles are never read. Never throws.
std::vector<FlightDump> flight_dumps(const std::vector<RecordingRank>& ranks,
                                     Clock::time_point deadline);

}  // namespace dlaunch::launcher
