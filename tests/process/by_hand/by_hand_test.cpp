// Ranks started by hand, as in several terminals: who they find, and what each is told when the
// world cannot form or falls apart.
#include "runtime/base/os/identity.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/world/by_hand/meeting_file.hpp"
#include "tests/process/by_hand/by_hand_start.hpp"

#include <dlaunch/port.hpp>

#include <filesystem>

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

using dlaunch::Listener;

namespace {

/// Two processes that claim one rank: the one that comes later is refused and ends, which proves
/// that the other was admitted.
class Twins {
 public:
  Twins(int port, int rank, int size)
      : a_(start("env://", four(port, rank, size), "hold")),
        b_(start("env://", four(port, rank, size), "hold")) {
    siginfo_t info{};
    do {
      ::waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
    } while (info.si_pid != a_.pid() && info.si_pid != b_.pid());
    a_is_refused_ = info.si_pid == a_.pid();
  }
  Process& refused() { return a_is_refused_ ? a_ : b_; }
  Process& admitted() { return a_is_refused_ ? b_ : a_; }

 private:
  Process a_, b_;
  bool a_is_refused_ = false;
};

}  // namespace

TEST_CASE("four processes with four variables find each other, in any order") {
  const int port = free_port();
  std::vector<Process> ranks;
  for (const int rank : {3, 1, 0, 2}) {
    ranks.push_back(start("env://", four(port, rank, 4), "meet"));
  }
  std::size_t i = 0;
  for (const int rank : {3, 1, 0, 2}) {
    CHECK(ranks[i].wait() == 0);
    CHECK(contains(ranks[i].output(), "met rank=" + std::to_string(rank) +
                                          " size=4 local=" + std::to_string(rank) + "/4 node=0/1"));
    CHECK(contains(ranks[i].output(), "url=env://"));
    ++i;
  }
}

TEST_CASE("tcp:// says it all in the URL; localhost has two addresses") {
  const int port = free_port();
  const std::string url = "tcp://localhost:" + std::to_string(port);
  Process first = start(url + "?rank=0&world_size=2", {}, "meet");
  Process second = start(url, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}, "meet");
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(contains(second.output(), "master=localhost:" + std::to_string(port)));
}

TEST_CASE("file:// needs nothing but a path, and leaves nothing behind") {
  const MeetingPath meeting;
  Process late = start(meeting.url(1, 2), {}, "meet");
  Process first = start(meeting.url(0, 2), {}, "meet");
  CHECK(late.wait() == 0);
  CHECK(first.wait() == 0);
  CHECK_FALSE(std::filesystem::exists(meeting.path));
}

TEST_CASE("ranks of a host share memory, also where the environment says who is local") {
  for (const bool on_node : {false, true}) {
    CAPTURE(on_node);
    const int port = free_port();
    std::vector<Process> ranks;
    for (const int rank : {2, 0, 1}) {
      Variables variables = four(port, rank, 3);
      if (on_node) {
        variables.insert({{"LOCAL_RANK", std::to_string(rank)},
                          {"LOCAL_WORLD_SIZE", "3"},
                          {"GROUP_RANK", "0"},
                          {"GROUP_WORLD_SIZE", "1"}});
      }
      ranks.push_back(start("env://", variables, "share"));
    }
    for (Process& rank : ranks) {
      CHECK(rank.wait() == 0);
      CHECK_MESSAGE(contains(rank.output(), "of 3 in segment "), rank.output());
      CHECK(contains(rank.output(), "and reads 1000 1001 1002"));
    }
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // They need the address space.
TEST_CASE("if one rank of a host cannot have the memory, none of them uses it") {
  for (const int unable : {0, 1}) {
    CAPTURE(unable);
    const int port = free_port();
    std::vector<Process> ranks;
    for (const int rank : {0, 1, 2}) {
      const std::string limit = rank == unable ? "ulimit -v 2000000; " : "";
      ranks.push_back(Process({"/bin/sh", "-c", limit + "exec " + program + " env:// 30000 share"},
                              four(port, rank, 3)));
    }
    for (Process& rank : ranks) {
      CHECK(rank.wait() == 0);
      CHECK_MESSAGE(contains(rank.output(), "shares nothing"), rank.output());
    }
  }
}
#endif

TEST_CASE("a world of one needs nobody") {
  Process alone = start("env://", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "meet");
  CHECK(alone.wait() == 0);
  CHECK(contains(alone.output(), "met rank=0 size=1"));
}

TEST_CASE("a missing variable is named, without waiting") {
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"}) {
    Variables variables = four(1, 1, 2);
    variables.erase(name);
    Process rank = start("env://", variables, "meet");
    CHECK(rank.wait() == 1);
    CHECK(contains(rank.output(), "error misuse: " + std::string(name) + " is missing"));
  }
}

TEST_CASE("wrong numbers and a rank out of range are shown") {
  Variables variables = four(1, 1, 2);
  variables["RANK"] = "one";
  Process wrong = start("env://", variables, "meet");
  CHECK(wrong.wait() == 1);
  CHECK(contains(wrong.output(), "RANK is 'one'"));
  Process beyond = start("env://", four(1, 2, 2), "meet");
  CHECK(beyond.wait() == 1);
  CHECK(contains(beyond.output(), "RANK is 2, but WORLD_SIZE is 2"));
}

TEST_CASE("a duplicate rank is told who was first, and the world forms without it") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 3), "meet");
  Twins ones(port, 1, 3);
  CHECK(ones.refused().wait() == 1);
  CHECK(contains(ones.refused().output(), "error refused"));
  CHECK(contains(ones.refused().output(),
                 "rank 1 is taken by pid " + std::to_string(ones.admitted().pid()) + " on "));
  // The others hear of it while they still wait.
  const std::string told = "a process was turned away: rank 1 is taken by pid ";
  zero.read_until(told);
  ones.admitted().read_until(told);
  Process two = start("env://", four(port, 2, 3), "meet");
  CHECK(two.wait() == 0);
  ones.admitted().close_stdin();
  CHECK(ones.admitted().wait() == 0);
  CHECK(zero.wait() == 0);
}

TEST_CASE("a second rank 0 is told who the first is") {
  const int port = free_port();
  Process first = start("env://", four(port, 0, 2), "hold");
  Process one = start("env://", four(port, 1, 2), "meet");
  first.read_until("met");
  Process second = start("env://", four(port, 0, 2), "meet");
  CHECK(second.wait() == 1);
  CHECK(
      contains(second.output(), "rank 0 is taken by pid " + std::to_string(first.pid()) + " on "));
  first.close_stdin();
  CHECK(first.wait() == 0);
  CHECK(one.wait() == 0);
}

TEST_CASE("the first rank 0 of two learns of the second while it waits") {
  const int port = free_port();
  Process first = start("env://", four(port, 0, 2), "meet");
  Process second = start("env://", four(port, 0, 2), "meet");
  // Whichever comes first listens.
  siginfo_t info{};
  do {
    ::waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);
  } while (info.si_pid != first.pid() && info.si_pid != second.pid());
  Process& refused = info.si_pid == first.pid() ? first : second;
  Process& accepted = info.si_pid == first.pid() ? second : first;
  CHECK(refused.wait() == 1);
  accepted.read_until("a process was turned away: rank 0 is taken by pid " +
                      std::to_string(accepted.pid()));
  Process one = start("env://", four(port, 1, 2), "meet");
  CHECK(one.wait() == 0);
  CHECK(accepted.wait() == 0);
}

TEST_CASE("a port that somebody else holds is named with its owner") {
  const Listener busy;
  Process zero = start("env://", four(busy.port(), 0, 2), "meet");
  CHECK(zero.wait() == 1);
  CHECK(contains(zero.output(), "error refused: rank 0 hosts the store: listening on 127.0.0.1:" +
                                    std::to_string(busy.port())));
  CHECK(contains(zero.output(), "by pid " + std::to_string(::getpid())));
}

TEST_CASE("a disagreement on the world size shows both") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 2), "meet", "5000");
  Process other = start("env://", four(port, 2, 3), "meet");
  CHECK(other.wait() == 1);
  CAPTURE(other.output());
  CHECK(contains(other.output(), "error refused"));
  CHECK(contains(other.output(), "rank 2 (pid " + std::to_string(other.pid())));
  CHECK(contains(other.output(), "says the world has 3 ranks, but rank 0"));
  CHECK(contains(other.output(), "says 2"));
  zero.read_until("a process was turned away: rank 2 (pid " + std::to_string(other.pid()));
  Process one = start("env://", four(port, 1, 2), "meet");
  CHECK(one.wait() == 0);
  CHECK(zero.wait() == 0);
}

TEST_CASE("a rank that never comes is named on every rank, with who came and who was refused") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 4), "meet", "3000");
  Process one = start("env://", four(port, 1, 4), "meet");
  Process stray = start("env://", four(port, 1, 9), "meet");
  CHECK(stray.wait() == 1);
  CHECK(zero.wait() == 1);
  CHECK(one.wait() == 1);
  for (const Process* rank : {&zero, &one}) {
    CAPTURE(rank->output());
    CHECK(contains(rank->output(), "error timeout"));
    CHECK(contains(rank->output(), "ranks 2 and 3 of 4 did not come"));
    CHECK(contains(rank->output(), "rank 0 (pid " + std::to_string(zero.pid()) + " on "));
    CHECK(contains(rank->output(), "rank 1 (pid " + std::to_string(one.pid()) + " on "));
    CHECK(contains(rank->output(), "says the world has 9 ranks"));
  }
}

TEST_CASE("a rank that dies while the world forms ends it for all, with its name") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 3), "meet");
  Twins ones(port, 1, 3);
  ::kill(ones.admitted().pid(), SIGKILL);
  CHECK(zero.wait() == 1);
  CAPTURE(zero.output());
  // Rank 0 itself may come to its own store only after that.
  CHECK(contains(zero.output(), "error peer lost"));
  CHECK(contains(zero.output(), "rank 1 on "));
  CHECK(contains(zero.output(), "was lost while the world was forming"));
}

TEST_CASE("nobody listens at the address: refused, with what to look at") {
  Process one = start("env://", four(free_port(), 1, 2), "meet", brief);
  CHECK(one.wait() == 1);
  CHECK(contains(one.output(), "error unreachable: rank 1 cannot reach rank 0's store"));
  CHECK(contains(one.output(), "connection refused"));
}

TEST_CASE("a host name that nobody knows is named") {
  for (const int rank : {0, 1}) {
    Variables variables = four(29500, rank, 2);
    variables["MASTER_ADDR"] = "no-such-host.invalid";
    Process process = start("env://", variables, "meet", brief);
    CHECK(process.wait() == 1);
    CHECK(contains(process.output(), "error unreachable"));
    CHECK(contains(process.output(), "looking up the host name 'no-such-host.invalid' failed"));
  }
}

TEST_CASE("rank 0 on another host than MASTER_ADDR says so") {
  Variables variables = four(free_port(), 0, 2);
  variables["MASTER_ADDR"] = "192.0.2.1";  // Set aside for documentation: nobody's.
  Process zero = start("env://", variables, "meet");
  CHECK(zero.wait() == 1);
  CHECK(contains(zero.output(), "must run on the host that '192.0.2.1' names"));
}

TEST_CASE("a stale file is recognised, and replaced by rank 0") {
  const MeetingPath meeting;
  Process killed = start(meeting.url(0, 2), {}, "meet");
  while (!std::filesystem::exists(meeting.path)) {
    REQUIRE(::kill(killed.pid(), 0) == 0);
  }
  ::kill(killed.pid(), SIGKILL);
  killed.wait();
  REQUIRE(std::filesystem::exists(meeting.path));

  Process waiting = start(meeting.url(1, 2), {}, "meet", brief);
  CHECK(waiting.wait() == 1);
  CHECK(contains(waiting.output(), "error timeout: rank 1 did not find rank 0"));
  CHECK(contains(waiting.output(), "is stale: it was written by pid "));

  Process early = start(meeting.url(1, 2), {}, "meet");
  Process zero = start(meeting.url(0, 2), {}, "meet");
  CHECK(early.wait() == 0);
  CHECK(zero.wait() == 0);
  CHECK_FALSE(std::filesystem::exists(meeting.path));
}

TEST_CASE("a file whose port now belongs to another job is stale, too") {
  const MeetingPath meeting;
  const MeetingPath other;
  // Another job's store, and a file of an earlier run that names its port and this live process.
  Process zero = start(other.url(0, 2), {}, "meet");
  while (!std::filesystem::exists(other.path)) REQUIRE(::kill(zero.pid(), 0) == 0);
  dlaunch::MeetingRecord old = dlaunch::meeting_of_this_process();
  old.host = "127.0.0.1";
  old.port = dlaunch::read_meeting(other.path)->port;
  dlaunch::write_meeting(meeting.path, old);
  Process lost = start(meeting.url(1, 2), {}, "meet", brief);
  CHECK(lost.wait() == 1);
  CHECK(contains(lost.output(), "another job's store listens here"));
  Process one = start(other.url(1, 2), {}, "meet");
  CHECK(one.wait() == 0);
  CHECK(zero.wait() == 0);
}

TEST_CASE("no file at all: rank 0 is not started, or sees another file") {
  const MeetingPath meeting;
  Process one = start(meeting.url(1, 2), {}, "meet", "300");
  CHECK(one.wait() == 1);
  CHECK(contains(one.output(), "rank 0 has not written the meeting file '" + meeting.path));
}

TEST_CASE("two ranks 0 on one file: the second is told") {
  const MeetingPath meeting;
  Process first = start(meeting.url(0, 2), {}, "meet");
  while (!std::filesystem::exists(meeting.path)) REQUIRE(::kill(first.pid(), 0) == 0);
  Process second = start(meeting.url(0, 2), {}, "meet");
  CHECK(second.wait() == 1);
  CHECK(contains(second.output(), "belongs to pid " + std::to_string(first.pid())));
  first.read_until("a process was turned away: rank 0 is taken by pid ");
  Process one = start(meeting.url(1, 2), {}, "meet");
  CHECK(one.wait() == 0);
  CHECK(first.wait() == 0);
}

TEST_CASE("a rank that is killed, or ends in an exception, is a loss to the others") {
  for (const bool killed : {true, false}) {
    const int port = free_port();
    Process zero = start("env://", four(port, 0, 3), "await-loss");
    Process one = start("env://", four(port, 1, 3), "await-loss");
    Process two = start("env://", four(port, 2, 3), "throw");
    for (Process* rank : {&zero, &one, &two}) rank->read_until("met");
    if (killed) {
      ::kill(two.pid(), SIGKILL);
    } else {
      two.close_stdin();
    }
    CHECK(two.wait() == (killed ? 128 + SIGKILL : 2));
    for (Process* rank : {&zero, &one}) {
      CHECK(rank->wait() == 0);
      CHECK(contains(rank->output(), "lost rank 2: its connection closed without a goodbye"));
    }
  }
}

TEST_CASE("rank 0 lost: the others learn that the store is gone") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 2), "hold");
  Process one = start("env://", four(port, 1, 2), "await-loss");
  zero.read_until("met");
  one.read_until("met");
  ::kill(zero.pid(), SIGKILL);
  CHECK(one.wait() == 1);
  CHECK(contains(one.output(), "error peer lost"));
  CHECK(contains(one.output(), "rank 0"));
}

TEST_CASE("a rank is lost with its process, whatever children it has forked") {
  for (const int lost : {0, 1}) {
    const int port = free_port();
    Process other = start("env://", four(port, 1 - lost, 2), "await-loss");
    Process leaving = start("env://", four(port, lost, 2), "leave-child");
    CHECK(other.wait() == (lost == 0 ? 1 : 0));
    CHECK(contains(other.output(), "lost rank " + std::to_string(lost)));
    leaving.close_stdin();
    CHECK(leaving.wait() == 128 + SIGKILL);
  }
}

TEST_CASE("rank 0 stays until the last member has said goodbye") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 2), "meet");
  Process one = start("env://", four(port, 1, 2), "hold");
  zero.read_until("done");
  one.read_until("met");
  CHECK(::waitpid(zero.pid(), nullptr, WNOHANG) == 0);
  one.close_stdin();
  CHECK(one.wait() == 0);
  CHECK(contains(one.output(), "done"));
  CHECK(zero.wait() == 0);
}

TEST_CASE("a forked child may not use its parent's world, and does not end it") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 2), "fork");
  Process one = start("env://", four(port, 1, 2), "fork");
  for (Process* rank : {&zero, &one}) {
    CHECK(rank->wait() == 0);
    CHECK(contains(rank->output(), "child: this world belongs to the parent process"));
    CHECK(contains(rank->output(), "child ended with 0"));
  }
}

TEST_CASE("the first one's failure reaches the others at once") {
  const int port = free_port();
  Process zero = start("env://", four(port, 0, 2), "first");
  Process one = start("env://", four(port, 1, 2), "first");
  CHECK(zero.wait() == 2);
  CHECK(one.wait() == 1);
  CHECK(contains(one.output(), "error aborted: rank_zero_first: rank 0: no disk space"));
}
