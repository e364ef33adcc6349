#pragma once

#include "launcher/report/job_list.hpp"
#include "runtime/base/bytes.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

/// A launcher's description of itself for `dlaunch ps`, `stop` and the like, as bytes.
namespace dlaunch::launcher {

/// A launcher's last word.
struct JobFarewell {
  std::int32_t exit_code = 0;
};

/// Whether somebody has asked the launcher to end the job a moment ago.
struct JobStopAsked {
  bool just_asked = false;
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

/// The waits of the clients of PyTorch's store, from the launcher that has the store.
struct JobStoreWaits {
  struct Wait {
    std::int32_t rank = -1;  ///< -1: not known, or no rank.
    std::string client;      ///< "rank 3 (pid 4711)", "one of the ranks 4 to 7 on node b".
    std::vector<std::string> keys = {};  ///< The first of its keys that nobody has set.
    std::uint64_t more = 0;              ///< How many keys were not looked at.
    std::uint64_t for_ms = 0;
    /// Arrivals at a barrier of the store's own, and the number it waits for; 0 where it is none.
    std::int64_t arrived = 0, expected = 0;
  };
  std::vector<Wait> waits = {};
  std::uint64_t left_out = 0;  ///< Number of waiting clients that are not listed.
  bool elsewhere = false;      ///< The store is at the agent of node rank 0, which is not asked.
  std::int32_t world_size = 0;
};

Bytes encode(const JobEntry& entry);
Bytes encode(const JobRanks& ranks);
Bytes encode(const JobStoreWaits& waits);
Bytes encode(const JobDrained& drained);
Bytes encode(const JobFarewell& farewell);
Bytes encode(const JobStopAsked& asked);
/// nullopt where the bytes are not exactly one such value of this version of dlaunch.
std::optional<JobEntry> decode_entry(BytesView bytes);
std::optional<JobRanks> decode_ranks(BytesView bytes);
std::optional<JobStoreWaits> decode_store_waits(BytesView bytes);
std::optional<JobDrained> decode_drained(BytesView bytes);
std::optional<JobFarewell> decode_farewell(BytesView bytes);
std::optional<JobStopAsked> decode_stop_asked(BytesView bytes);

}  // namespace dlaunch::launcher
