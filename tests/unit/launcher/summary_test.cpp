#include "launcher/report/summary.hpp"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

/// 2026-11-20 12:45:10.250 UTC, and a little later for each rank.
dlaunch::WallClock::time_point moment(int rank) {
  return dlaunch::WallClock::time_point(std::chrono::seconds(1'795'178'710)) +
         std::chrono::milliseconds(250 + rank);
}

WorkerEnd ended(int rank, dlaunch::ExitStatus status) {
  WorkerEnd end;
  end.rank = end.local_rank = rank;
  end.host = "box";
  end.pid = 1000 + rank;
  end.status = status;
  end.time = moment(rank);
  return end;
}

WorkerEnd stopped(int rank, int signal) {
  auto end = ended(rank, {.code = 0, .signal = signal, .core_dumped = false});
  end.stopped_by_us = true;
  return end;
}

WorkerEnd lost_peer(int rank) {
  auto end = ended(rank, {.code = 75, .signal = 0, .core_dumped = false});
  end.peer_lost = true;
  return end;
}

constexpr dlaunch::ExitStatus exit_with(int code) {
  return {.code = code, .signal = 0, .core_dumped = false};
}
constexpr dlaunch::ExitStatus killed_by(int signal) {
  return {.code = 0, .signal = signal, .core_dumped = false};
}

}  // namespace

TEST_CASE("one worker is killed, the others are stopped") {
  FailureSummary summary;
  summary.program = "train.py";
  summary.root_cause = 1;
  summary.ends = {ended(1, killed_by(SIGKILL)), stopped(0, SIGTERM), stopped(2, SIGTERM),
                  stopped(3, SIGKILL)};
  summary.ends[0].last_lines = {"loading", "step 1"};
  CHECK(failure_summary(summary) ==
        R"(================================================================================
train.py FAILED
--------------------------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
Ended while dlaunch stopped the job:
  rank 3 (killed by SIGKILL)
  ranks 0,2 (killed by SIGTERM)
--------------------------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_12:45:10.251
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : -9 (pid: 1001), killed by SIGKILL
  error_file: <N/A>
  traceback : <N/A>
  hint      : dlaunch did not send this signal; the kernel does when memory runs out (see dmesg)
  last lines of stderr:
    | loading
    | step 1
================================================================================
)");
}

TEST_CASE("a PyTorch that cannot use our store: how its ranks meet all the same") {
  FailureSummary summary;
  summary.program = "train.py";
  summary.root_cause = 0;
  summary.ends = {ended(0, {.code = 1, .signal = 0, .core_dumped = false})};
  summary.ends[0].last_lines = {
      "RuntimeError: use_libuv was requested but PyTorch was build without libuv support"};
  CHECK(failure_summary(summary).find(
            "  hint      : this PyTorch has no libuv, so its ranks cannot use a launcher's store; "
            "they meet with USE_LIBUV=0 in the environment and --torch-store rank0\n") !=
        std::string::npos);
}

TEST_CASE("a peer's loss is told, but never the root cause, even when reaped first") {
  FailureSummary summary;
  summary.program = "./train";
  summary.ends = {lost_peer(0), ended(1, exit_with(3))};
  summary.ends[0].last_lines = {"a", "b", "c", "dlaunch: rank 1 is lost"};
  summary.ends[1].error_file = "/log/1/error.json";
  summary.ends[1].error = ErrorReport{.message = "ValueError: x", .callstack = "Traceback:\n  f()"};
  summary.ends[1].last_lines = {"Traceback:", "  f()"};
  summary.attempt = 1;
  summary.max_restarts = 1;
  summary.utc_offset = std::chrono::hours(1);
  summary.root_cause = 1;
  CHECK(failure_summary(summary) ==
        R"(================================================================================
./train FAILED after 1 of 1 restarts
--------------------------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-20_13:45:10.250
  host      : box
  rank      : 0 (local_rank: 0)
  exitcode  : 75 (pid: 1000), for the loss of a peer
  error_file: <N/A>
  traceback : <N/A>
  last lines of stderr:
    | b
    | c
    | dlaunch: rank 1 is lost
--------------------------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-20_13:45:10.251
  host      : box
  rank      : 1 (local_rank: 1)
  exitcode  : 3 (pid: 1001)
  error_file: /log/1/error.json
  traceback :
    Traceback:
      f()
================================================================================
)");
}

TEST_CASE("the one who left early is shown as the root cause") {
  FailureSummary summary;
  summary.program = "p";
  summary.root_cause = 2;
  summary.ends = {ended(2, exit_with(0)), lost_peer(0)};
  const auto text = failure_summary(summary);
  CHECK(text.find("exitcode  : 0 (pid: 1002), left before the others\n") != std::string::npos);
}

TEST_CASE("where the root cause is another node's, ours is told among the failures") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {lost_peer(0), lost_peer(1)};
  summary.elsewhere = "the job ends: rank 3 on b was killed by SIGKILL";
  auto text = failure_summary(summary);
  CHECK(text.find("[1]:") < text.find("[2]:"));
  CHECK(text.find(
            "Root Cause (none of this node's ranks):\n  the job ends: rank 3 on b was killed") !=
        std::string::npos);
  // Those that failed by themselves, too: one cause is told.
  summary.ends.push_back(ended(2, exit_with(3)));
  text = failure_summary(summary);
  CHECK(text.find("rank      : 2") < text.find("Root Cause (none of this node's ranks)"));
  CHECK(text.find("Root Cause") == text.rfind("Root Cause"));
}

TEST_CASE("what another node tells of the rank to blame is shown here") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {lost_peer(0)};
  summary.elsewhere = "the job ends: rank 3 on b exited with 3";
  summary.elsewhere_details = dlaunch::rendezvous::RankDetails{3,
                                                               1,
                                                               "node-b",
                                                               "b",
                                                               4711,
                                                               1'763'642'710'250,
                                                               "/log/3/error.json",
                                                               "ValueError: x",
                                                               {"step 1", "no luck"},
                                                               true};
  CHECK(failure_summary(summary).find(R"(Root Cause (none of this node's ranks):
  the job ends: rank 3 on b exited with 3
  time      : 2025-11-20_12:45:10.250
  node      : node-b (host: b)
  rank      : 3 (local_rank: 1, pid: 4711)
  error_file: /log/3/error.json
  message   : ValueError: x
  last lines of stdout and stderr:
    | step 1
    | no luck
)") != std::string::npos);
}

TEST_CASE("why a rank is to blame is said where its end does not say it") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {lost_peer(0), stopped(1, SIGTERM)};
  summary.root_cause = 1;
  summary.why = "rank 1 on h did not come in time";
  CHECK(failure_summary(summary).find("  cause     : rank 1 on h did not come in time\n") !=
        std::string::npos);
}

TEST_CASE("where nobody failed here, the cause is told all the same") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {stopped(0, SIGTERM)};
  summary.elsewhere = "the job ends: node b is lost: silent for 5.0 s";
  const auto text = failure_summary(summary);
  CHECK(text.find("p FAILED\n") != std::string::npos);
  CHECK(text.find("  <NO_FAILURES_HERE>\nEnded while dlaunch stopped the job:\n  rank 0 (killed") !=
        std::string::npos);
  CHECK(text.find("Root Cause (none of this node's ranks):\n  the job ends: node b is lost") !=
        std::string::npos);
}

TEST_CASE("a job that went on without its failed ranks did not fail") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {ended(0, exit_with(0)), ended(1, exit_with(3))};
  summary.root_cause = 1;
  summary.tolerated = true;
  const auto text = failure_summary(summary);
  CHECK(text.find("p ended with 0, though 1 rank failed on the way (--on-failure continue)\n") !=
        std::string::npos);
  CHECK(text.find("First Failure:\n[0]:\n") != std::string::npos);
  CHECK(text.find("FAILED") == std::string::npos);
}

TEST_CASE("the supervisor's verdict counts before our own") {
  FailureSummary summary;
  summary.program = "p";
  summary.ends = {ended(0, exit_with(1)), ended(1, exit_with(2))};
  summary.root_cause = 1;
  const auto text = failure_summary(summary);
  CHECK(text.find("[0]:") > text.find("Root Cause"));
  CHECK(text.find("rank      : 1") > text.find("Root Cause"));
}

TEST_CASE("no failure, no summary") {
  FailureSummary summary;
  summary.ends = {ended(0, exit_with(0)), stopped(1, SIGTERM)};
  CHECK(failure_summary(summary).empty());
}

TEST_CASE("many failures stay readable") {
  FailureSummary summary;
  summary.program = "p";
  summary.root_cause = 0;
  for (int rank = 0; rank < 64; ++rank) summary.ends.push_back(ended(rank, exit_with(1)));
  const auto text = failure_summary(summary);
  CHECK(text.find("[8]:") != std::string::npos);
  CHECK(text.find("[9]:") == std::string::npos);
  CHECK(text.find("and 55 more: ranks 9-63\n") != std::string::npos);
}

TEST_CASE("an error file with a message and no traceback") {
  FailureSummary summary;
  summary.program = "p";
  summary.root_cause = 0;
  summary.ends = {ended(0, exit_with(1))};
  summary.ends[0].error = ErrorReport{.message = "out of data", .callstack = ""};
  CHECK(failure_summary(summary).find("  message   : out of data\n") != std::string::npos);
}

TEST_CASE("times") {
  CHECK(dlaunch::iso_time(moment(0)) == "2026-11-20T12:45:10.250Z");
  CHECK(dlaunch::log_time(moment(0), std::chrono::seconds(-3600)) == "2026-11-20_11:45:10.250");
}
