#include "launcher/report/summary.hpp"

#include "tests/support/failure_block.hpp"

#include <algorithm>
#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using dlaunch::testing::field_of;

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

std::string failure_summary(const FailureSummary& summary) {
  const auto block = dlaunch::launcher::failure_block(summary);
  return block ? to_text(*block) : "";
}

/// The block's field, in one line.
std::string field(const FailureSummary& summary, const std::string& label) {
  return field_of(dlaunch::testing::failure_block(failure_summary(summary)), label);
}

FailureSummary of(std::string cause, std::vector<int> culprits, std::vector<WorkerEnd> ends) {
  FailureSummary summary;
  summary.program = "p";
  summary.cause = std::move(cause);
  summary.culprits = std::move(culprits);
  summary.ends = std::move(ends);
  return summary;
}

}  // namespace

TEST_CASE("one worker is killed, the others are stopped") {
  auto summary = of("rank 1 was killed by SIGKILL", {1},
                    {ended(1, killed_by(SIGKILL)), stopped(0, SIGTERM), stopped(2, SIGTERM),
                     stopped(3, SIGKILL)});
  summary.program = "train.py";
  summary.ends[0].last_lines = {"loading", "step 1"};
  summary.started = moment(1) - std::chrono::milliseconds(12'400);
  CHECK(failure_summary(summary) ==
        R"(================================================================================
train.py FAILED
  cause : rank 1 was killed by SIGKILL
  ended : 2026-11-20 12:45:10.251, 12 s after the start, pid 1001
  others: ranks 0,2 ended because of it; rank 3 did not end in time and was
          killed
  why   : dlaunch did not send this signal; the kernel does when memory runs out
          (see dmesg)
  words : its last lines on stderr
    | loading
    | step 1
  try   : --log-dir DIR --tee 3, which keeps what every rank writes
================================================================================
)");
}

TEST_CASE("a rank that the kernel killed for lack of memory") {
  auto summary = of("rank 0 was killed by SIGKILL", {0}, {ended(0, killed_by(SIGKILL))});
  summary.memory_kills = MemoryKills{"/sys/fs/cgroup/job/memory.events", 1};
  CHECK(field(summary, "why") ==
        "memory ran out: the kernel killed a process meanwhile (oom_kill in "
        "/sys/fs/cgroup/job/memory.events)");
  CHECK(field(summary, "try") == "fewer workers (--nproc-per-node), or a higher limit");
  summary.memory_kills->count = 3;
  CHECK(field(summary, "why").starts_with("memory ran out: the kernel killed 3 processes "));
  // Memory is not why, and that is worth knowing.
  summary.memory_kills->count = 0;
  CHECK(field(summary, "why") ==
        "neither dlaunch nor, for lack of memory, the kernel sent this signal (oom_kill in "
        "/sys/fs/cgroup/job/memory.events has not grown)");
}

TEST_CASE("a rank whose child was killed for lack of memory") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  summary.memory_kills = MemoryKills{"/proc/vmstat", 1};
  CHECK(field(summary, "why").starts_with("memory ran out: the kernel killed a process "));
  summary.memory_kills->count = 0;
  CHECK(field(summary, "why").empty());
}

TEST_CASE("a PyTorch that cannot use our store: how its ranks meet all the same") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  summary.ends[0].last_lines = {
      "RuntimeError: use_libuv was requested but PyTorch was build without libuv support"};
  CHECK(field(summary, "why") ==
        "this PyTorch has no libuv, so its ranks cannot use a launcher's store; they meet with "
        "USE_LIBUV=0 in the environment and --torch-store rank0");
}

TEST_CASE("gloo's ranks that went to a loopback address of another host") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  summary.ends[0].last_lines = {
      "RuntimeError: Gloo connectFullMesh failed with [gloo/transport/tcp/pair.cc:152] timed out "
      "connecting: SO_ERROR: Connection refused, remote=[127.0.0.1]:41349"};
  CHECK(field(summary, "why").empty());
  summary.several_nodes = true;
  CHECK(field(summary, "why") ==
        "gloo went to a loopback address, at which no rank of another host is: a host's own name "
        "leads there (/etc/hosts); GLOO_SOCKET_IFNAME=eth0, or what the interface to the others is "
        "called, sets it right");
  summary.ends[0].last_lines = {"RuntimeError: Gloo connectFullMesh failed, remote=[10.0.0.2]:1"};
  CHECK(field(summary, "why").empty());
}

TEST_CASE("a traceback is told once, and its files are named") {
  auto summary = of("rank 1 exited with 3", {1}, {lost_peer(0), ended(1, exit_with(3))});
  summary.program = "./train";
  summary.ends[0].last_lines = {"a", "b", "c", "dlaunch: rank 1 is lost"};
  summary.ends[1].error_file = "/log/1/error.json";
  summary.ends[1].error = ErrorReport{.message = "ValueError: x", .callstack = "Traceback:\n  f()"};
  summary.ends[1].last_lines = {"Traceback:", "  f()"};
  summary.attempt = 1;
  summary.max_restarts = 1;
  summary.utc_offset = std::chrono::hours(1);
  summary.log_file = "/log/1/stderr.log";
  summary.flight_file = "/log/flight.json";
  summary.stacks_file = "/log/stacks.txt";
  summary.stacks_headline =
      "rank 1 is in load, train.py:8; rank 0 waits in all_reduce, train.py:18";
  CHECK(failure_summary(summary) ==
        R"(================================================================================
./train FAILED after 1 of 1 restarts
  cause : rank 1 exited with 3: ValueError: x
  ended : 2026-11-20 13:45:10.251, pid 1001
  others: rank 0 ended because of it
  stacks: rank 1 is in load, train.py:8; rank 0 waits in all_reduce, train.py:18
  words : the end of its traceback
    | Traceback:
    |   f()
  see   : its error file /log/1/error.json, its log /log/1/stderr.log, every
          rank's last calls: /log/flight.json, the ranks' stacks:
          /log/stacks.txt
================================================================================
)");
}

TEST_CASE("what was raised is found in the last lines, too, behind PyTorch's marks") {
  auto summary = of("rank 2 exited with 1", {2}, {ended(2, exit_with(1))});
  summary.ends[0].last_lines = {"[rank2]: Traceback (most recent call last):",
                                "[rank2]:   File \"train.py\", line 3, in <module>",
                                "[rank2]: ValueError: no data", "a last warning"};
  CHECK(field(summary, "cause") == "rank 2 exited with 1: ValueError: no data");
  CHECK(failure_summary(summary).find("    |   File \"train.py\", line 3, in <module>\n") !=
        std::string::npos);
}

TEST_CASE("what gloo says is told without the place in its source") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  summary.ends[0].last_lines = {
      "Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
      "RuntimeError: [/__w/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed "
      "out waiting 5000ms for recv operation to complete"};
  auto text = failure_summary(summary);
  CHECK(
      text.find("  cause : rank 0 exited with 1: RuntimeError: Timed out waiting 5000ms for recv\n"
                "          operation to complete\n") != text.npos);
  summary.ends[0].last_lines[2] = "ValueError: [a b] c";
  CHECK(field(summary, "cause") == "rank 0 exited with 1: ValueError: [a b] c");
}

TEST_CASE("a rank that lost one that had left: that is told") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(1, exit_with(0)), ended(0, exit_with(1))});
  summary.ends[0].time = moment(0);
  summary.ends[1].time = moment(1);
  summary.ends[1].last_lines = {
      "Traceback (most recent call last):",
      "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:559"};
  CHECK(field(summary, "why") == "it lost another rank; rank 1 had exited with 0 before");
  summary.ends[0].time = moment(2);
  CHECK(field(summary, "why").empty());
  summary.ends[0].time = moment(0);
  summary.ends[1].last_lines = {"ValueError: no data"};
  CHECK(field(summary, "why").empty());
}

TEST_CASE("a rank that printed to a pipe without a reader") {
  const std::string told =
      "the reader of dlaunch's stdout has gone, as behind 'dlaunch ... | head': a rank that prints "
      "there ends";
  auto summary = of("rank 0 was killed by SIGPIPE", {0}, {ended(0, killed_by(SIGPIPE))});
  CHECK(field(summary, "why").empty());
  summary.reader_gone = "stdout";
  CHECK(field(summary, "why") == told);
  summary.ends = {ended(0, exit_with(128 + SIGPIPE))};
  CHECK(field(summary, "why") == told);
  // Python, alone, and with words that we know.
  summary.ends = {ended(0, exit_with(1))};
  CHECK(field(summary, "why") == told);
  summary.ends[0].last_lines = {"another reason"};
  CHECK(field(summary, "why").empty());
  summary.ends = {ended(0, exit_with(3))};
  CHECK(field(summary, "why").empty());
  summary.ends[0].last_lines = {"BrokenPipeError: [Errno 32] Broken pipe"};
  CHECK(field(summary, "why") == told);
}

TEST_CASE("a rank that others lost, or that made another call: what they said") {
  auto summary = of("rank 1 was lost to the others while it ran", {1},
                    {lost_peer(0), stopped(1, SIGTERM), lost_peer(2)});
  summary.cause_is_an_end = false;
  summary.ends[0].blames = {3};
  summary.ends[0].complaint = "barrier #1: rank 0 lost rank 3";
  summary.ends[2].blames = {1};
  summary.ends[2].complaint = "recv from rank 1: rank 2 lost rank 1: it destroyed its communicator";
  CHECK(field(summary, "why").empty());
  summary.is_told_by_others = true;
  CHECK(field(summary, "why") == "rank 2 said: " + summary.ends[2].complaint);
  // Another one only repeats it.
  summary.ends[0].blames = {1};
  summary.ends[0].complained = summary.ends[2].complained + std::chrono::seconds(1);
  CHECK(field(summary, "why") == "rank 2 said: " + summary.ends[2].complaint);
  // The one who said so is to blame itself, and its words are shown.
  summary.culprits = {1, 2};
  summary.ends[1].last_lines = {"terminate: " + summary.ends[2].complaint};
  CHECK(field(summary, "why").empty());
  summary.ends[1].last_lines.clear();
  summary.ends[2].complaint.assign(500, 'x');
  CHECK(field(summary, "why") == "rank 2 said: " + std::string(400, 'x') + "...");
}

TEST_CASE("what a rank printed before a signal killed it is no cause") {
  auto summary = of("rank 1 was killed by SIGSEGV", {1}, {ended(1, killed_by(SIGSEGV))});
  summary.ends[0].last_lines = {"step 7"};
  CHECK(field(summary, "cause") == "rank 1 was killed by SIGSEGV: step 7");
  summary.ends[0].lines_of_both = true;
  CHECK(field(summary, "cause") == "rank 1 was killed by SIGSEGV");
  CHECK(field(summary, "words") == "its last lines on stdout and stderr");
}

TEST_CASE(
    "an exception that nobody caught is told by its words, and not by PyTorch's stack of it") {
  auto summary = of("rank 0 was killed by SIGABRT", {0}, {ended(0, killed_by(SIGABRT))});
  summary.ends[0].last_lines = {
      "terminate called after throwing an instance of 'c10::DistBackendError'",
      "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated "
      "with exception: [Rank 0] Watchdog caught collective timeout: SeqNum=2",
      "Exception raised from checkTimeout at ProcessGroupNCCL.cpp:692 (most recent call first):",
      "frame #0: c10::Error::Error(c10::SourceLocation) + 0x9d (0x7f8d in /lib/libc10.so)",
      "frame #1: <unknown function> + 0xecdb4 (0x7f8c in /lib/libstdc++.so.6)",
      ""};
  CHECK(field(summary, "cause") ==
        "rank 0 was killed by SIGABRT: c10::DistBackendError: Watchdog caught collective "
        "timeout: SeqNum=2");
  summary.ends[0].last_lines[1] = "  what():  [Rank 0";
  CHECK(field(summary, "cause") == "rank 0 was killed by SIGABRT: c10::DistBackendError: [Rank 0");
  const auto text = failure_summary(summary);
  CHECK(text.find("    | Exception raised from checkTimeout") != text.npos);
  CHECK(text.find("frame #") == text.npos);
  summary.ends[0].last_lines.erase(summary.ends[0].last_lines.begin() + 1);
  CHECK(field(summary, "cause") == "rank 0 was killed by SIGABRT");
}

TEST_CASE("ranks that fail alike are told once") {
  std::vector<WorkerEnd> ends;
  for (int rank = 0; rank < 64; ++rank) {
    ends.push_back(ended(rank, exit_with(1)));
    ends.back().last_lines = {"[rank" + std::to_string(rank) + "]: no data"};
  }
  ends[7].last_lines = {"no luck"};
  const auto summary = of("rank 0 exited with 1", {0}, std::move(ends));
  CHECK(field(summary, "others") == "ranks 1-63 exited with 1, too");
  CHECK(field(summary, "words") ==
        "its last lines on stderr; those of ranks 0-6,8-63 are the same");
  const auto text = failure_summary(summary);
  CHECK(text.find("    | no data\n") == text.rfind("    | no data\n"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 9);
}

TEST_CASE("the only line that a rank wrote is a part of the cause, if it is short") {
  auto summary = of("rank 1 exited with 3", {1}, {ended(1, exit_with(3))});
  summary.ends[0].last_lines = {"shard 7 is empty", ""};
  CHECK(field(summary, "cause") == "rank 1 exited with 3: shard 7 is empty");
  CHECK(field(summary, "words").empty());
  summary.ends[0].last_lines = {std::string(100, 'x')};
  CHECK(field(summary, "cause") == "rank 1 exited with 3");
  CHECK(field(summary, "words") == "its last lines on stderr");
}

TEST_CASE("only the last of many words are shown") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  for (int i = 0; i < 20; ++i) summary.ends[0].last_lines.push_back("line " + std::to_string(i));
  const auto text = failure_summary(summary);
  CHECK(text.find("| line 9\n") == std::string::npos);
  CHECK(text.find("| line 10\n") != std::string::npos);
  CHECK(text.find("| line 19\n") != std::string::npos);
}

TEST_CASE("a core file, or what became of it") {
  auto summary =
      of("rank 0 was killed by SIGSEGV (core dumped)", {0}, {ended(0, killed_by(SIGSEGV))});
  summary.ends[0].core_note = "taken by systemd-coredump: coredumpctl debug 1000";
  CHECK(field(summary, "core") == "taken by systemd-coredump: coredumpctl debug 1000");
  summary.ends[0].core_file = "/jobs/core.1000";
  CHECK(field(summary, "core") == "/jobs/core.1000");
}

TEST_CASE("the one who left early") {
  const auto summary = of("rank 2 exited with 0 before the others", {2},
                          {ended(2, exit_with(0)), lost_peer(0), ended(1, exit_with(0))});
  CHECK(field(summary, "cause") == "rank 2 exited with 0 before the others");
  CHECK(field(summary, "others") == "rank 0 ended because of it; rank 1 exited with 0");
  CHECK(field(summary, "try") == "--flight-file FILE, which writes every rank's last calls");
}

TEST_CASE("on several nodes the host and the local rank are told") {
  auto summary = of("rank 1 on box was killed by SIGABRT", {1}, {ended(1, killed_by(SIGABRT))});
  summary.several_nodes = true;
  CHECK(field(summary, "ended") == "2026-11-20 12:45:10.251, on box (local rank 1), pid 1001");
}

TEST_CASE("where the cause is another node's, ours are told, too") {
  auto summary = of("rank 3 on b was killed by SIGKILL", {}, {lost_peer(0), lost_peer(1)});
  CHECK(field(summary, "cause") == "rank 3 on b was killed by SIGKILL");
  CHECK(field(summary, "ranks") == "ranks 0-1 ended because of it");
  // Those that failed by themselves are told as such.
  summary.ends.push_back(ended(2, exit_with(3)));
  CHECK(field(summary, "ranks") == "ranks 0-1 ended because of it; rank 2 exited with 3");
}

TEST_CASE("what another node tells of the rank to blame is shown here") {
  auto summary = of("rank 3 on b exited with 3", {}, {lost_peer(0)});
  summary.elsewhere = dlaunch::rendezvous::RankDetails{3,
                                                       1,
                                                       "node-b",
                                                       "b",
                                                       4711,
                                                       1'763'642'710'250,
                                                       "/log/3/error.json",
                                                       "ValueError: x",
                                                       {"step 1", "no luck"},
                                                       true};
  CHECK(failure_summary(summary) ==
        R"(================================================================================
p FAILED
  cause : rank 3 on b exited with 3: ValueError: x
  ended : 2025-11-20 12:45:10.250, on node-b (host b, local rank 1), pid 4711
  ranks : rank 0 ended because of it
  words : its last lines on stdout and stderr
    | step 1
    | no luck
  see   : its error file /log/3/error.json
================================================================================
)");
}

TEST_CASE("how a rank ended is said where the cause does not say it") {
  auto summary = of("rank 1 did not come in time", {1}, {lost_peer(0), stopped(1, SIGTERM)});
  summary.cause_is_an_end = false;
  CHECK(field(summary, "cause") == "rank 1 did not come in time");
  CHECK(field(summary, "ended") ==
        "killed by SIGTERM when dlaunch stopped the job, 2026-11-20 12:45:10.251, pid 1001");
  CHECK(field(summary, "others") == "rank 0 ended because of it");
}

TEST_CASE("where nobody failed here, the cause is told all the same") {
  const auto summary = of("node b is lost: silent for 5.0 s", {}, {stopped(0, SIGTERM)});
  CHECK(failure_summary(summary) ==
        R"(================================================================================
p FAILED
  cause : node b is lost: silent for 5.0 s
  ranks : rank 0 ended because of it
================================================================================
)");
}

TEST_CASE("a job that went on without its failed ranks did not fail") {
  auto summary = of("rank 1 exited with 3", {1}, {ended(0, exit_with(0)), ended(1, exit_with(3))});
  summary.tolerated = true;
  const auto text = failure_summary(summary);
  CHECK(text.find("\np ended with 0, though 1 rank failed on the way\n") != std::string::npos);
  CHECK(field(summary, "first") == "rank 1 exited with 3");
  CHECK(text.find("FAILED") == std::string::npos);
}

TEST_CASE("the supervisor's verdict counts, not who was reaped first") {
  const auto summary =
      of("rank 1 exited with 2", {1}, {ended(0, exit_with(1)), ended(1, exit_with(2))});
  CHECK(field(summary, "ended").ends_with("pid 1001"));
  CHECK(field(summary, "others") == "rank 0 exited with 1, too");
}

TEST_CASE("no failure, no summary") {
  CHECK(failure_summary(of("", {}, {ended(0, exit_with(0)), stopped(1, SIGTERM)})).empty());
}

TEST_CASE("an error file with a message and no traceback") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  summary.ends[0].error = ErrorReport{.message = "out of data", .callstack = ""};
  CHECK(field(summary, "cause") == "rank 0 exited with 1: out of data");
}

TEST_CASE("a path stays whole, however long it is") {
  auto summary = of("rank 0 exited with 1", {0}, {ended(0, exit_with(1))});
  const std::string path = "/" + std::string(100, 'x');
  summary.log_file = path;
  CHECK(failure_summary(summary).find("  see   : its log\n          " + path + "\n") !=
        std::string::npos);
}

TEST_CASE("times") {
  CHECK(dlaunch::iso_time(moment(0)) == "2026-11-20T12:45:10.250Z");
  CHECK(dlaunch::log_time(moment(0), std::chrono::seconds(-3600)) == "2026-11-20_11:45:10.250");
}
