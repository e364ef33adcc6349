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
  /// The byte from which to show, moved back to the beginning of its line.
  std::uint64_t begin = 0;
};

/// The files to which the ranks of a launcher write; only parts written within `since`, unless that
/// is 0.
std::vector<LogFile> log_files_of(const JobRanks& ranks, Clock::duration since);
/// The files of the last attempt in a folder, which may be --log-dir itself if it has one job's
/// logs only, a job's folder in it, or an attempt's folder in that. A sentence where they cannot be
/// found.
Read<std::vector<LogFile>> log_files_below(const std::string& directory);

}  // namespace dlaunch::launcher
