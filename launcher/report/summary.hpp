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
  bool blames_others = false;  ///< It says that it failed in a call through the fault of others.
  /// Its own sentence about a call that failed for other ranks, and these; empty where there was
  /// none, or where it had gone on since.
  std::string complaint = {};
  std::vector<int> blames = {};
  Clock::time_point complained{};  ///< The first to complain knows it at first hand.
  std::string error_file;          ///< Path, where the worker wrote one; else empty.
  std::optional<ErrorReport> error;
  std::vector<std::string> last_lines;  ///< The last lines of its stderr.
  bool lines_of_both = false;           ///< They include its stdout.
  std::string core_file;                ///< Path, where its core file was found; else empty.
  std::string core_note;                ///< Else what became of the core that its signal calls for.

  bool failed() const { return !status.succeeded() && !stopped_by_us; }
};

/// The kernel's count of processes that it has killed for lack of memory.
struct MemoryKills {
  std::string file;  ///< The file that has it.
  long count = 0;    ///< How many there were while the attempt ran.

  bool operator==(const MemoryKills&) const = default;
};

struct FailureSummary {
  std::string program;
  std::string cause;            ///< A sentence; empty where nobody failed.
  bool cause_is_an_end = true;  ///< The cause tells how the culprit ended.
  /// The cause says only that others lost the culprit, or made another call: their own sentences
  /// say more.
  bool is_told_by_others = false;
  std::vector<int> culprits;    ///< The ranks to blame, the first one first.
  std::vector<WorkerEnd> ends;  ///< In the order in which they were observed.
  /// Details of the rank to blame, if it is another node's.
  std::optional<rendezvous::RankDetails> elsewhere;
  bool several_nodes = false;
  WallClock::time_point started{};  ///< When the attempt began.
  int attempt = 0;                  ///< How often the workers had been started again.
  int max_restarts = 0;             ///< How often that may happen.
  /// The window in which restarts count; 0: all count.
  std::chrono::milliseconds restart_window{0};
  bool tolerated = false;  ///< The job ended well all the same.
  std::optional<MemoryKills> memory_kills;
  std::string reader_gone;             ///< "stdout" where dlaunch's own has lost its reader.
  std::string log_file;                ///< The first culprit's log.
  std::string flight_file;             ///< The file of the ranks' last calls.
  std::string stacks_file;             ///< The file of their stacks, when something timed out.
  std::string stacks_headline;         ///< Where the ranks were, by that file.
  std::chrono::seconds utc_offset{0};  ///< Times are shown in this zone.
};

/// The block about a failure, in reading order.
struct FailureBlock {
  struct Field {
    std::string label;  ///< "cause".
    std::string text;
    std::vector<std::string> lines = {};  ///< Verbatim lines below it.
  };
  std::string title;        ///< "train.py FAILED".
  std::optional<int> rank;  ///< The first one to blame.
  std::vector<Field> fields;
};

/// nullopt where nobody failed.
std::optional<FailureBlock> failure_block(const FailureSummary& summary);
/// Between borders, in 80 columns, ending in a newline.
std::string to_text(const FailureBlock& block);

}  // namespace dlaunch::launcher
