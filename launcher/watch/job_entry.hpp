#pragma once

#include "launcher/report/job_list.hpp"
#include "runtime/base/bytes.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

/// What a launcher says of itself to `dlaunch ps`, `stop` and the like, as bytes.
namespace dlaunch::launcher {

/// A launcher's last word.
struct JobFarewell {
  std::int32_t exit_code = 0;
};

/// A launcher's own ranks, of its last attempt; none before the first.
struct JobRanks {
  /// A part of a log file, up to the next one.
  struct LogSpan {
    std::uint64_t begin = 0;   ///< Bytes before it.
    std::uint64_t age_ms = 0;  ///< Since its last byte was written.
  };
  struct Rank {
    std::int32_t rank = 0;
    pid_t pid = 0;            ///< 0 where it does not run.
    std::string prefix = {};  ///< Before each of its lines on the console; may be empty.
    std::string out_file = {}, err_file = {};  ///< Its log files; empty where there is none.
    std::vector<LogSpan> out_spans = {}, err_spans = {};
  };
  std::vector<Rank> ranks;
};

Bytes encode(const JobEntry& entry);
Bytes encode(const JobRanks& ranks);
Bytes encode(const JobDrained& drained);
Bytes encode(const JobFarewell& farewell);
/// nullopt where the bytes are not exactly one such value of this version of dlaunch.
std::optional<JobEntry> decode_entry(BytesView bytes);
std::optional<JobRanks> decode_ranks(BytesView bytes);
std::optional<JobDrained> decode_drained(BytesView bytes);
std::optional<JobFarewell> decode_farewell(BytesView bytes);

}  // namespace dlaunch::launcher
