#pragma once

#include "launcher/output/output_lines.hpp"
#include "launcher/watch/job_entry.hpp"
#include "runtime/base/text/values.hpp"

#include <dlaunch/error.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// A log file of one rank.
struct LogFile {
  int rank = 0;
  Stream stream = Stream::out;
  std::string prefix;  ///< Before each of its lines; may be empty.
  std::string path;
  std::uint64_t begin = 0;  ///< So much is not to be shown, but for the line that it ends in.
};

/// Those that the ranks of a launcher write to; what was written within `since`, unless that is 0.
std::vector<LogFile> log_files_of(const JobRanks& ranks, Clock::duration since);
/// Those of the last attempt that a folder has: --log-dir itself where it has one job's logs only,
/// a job's folder in it, or an attempt's in that. A sentence where they cannot be told.
Read<std::vector<LogFile>> log_files_below(const std::string& directory);

}  // namespace dlaunch::launcher
