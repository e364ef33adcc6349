// kill -9 of a worker, of the agent, of the front: no process is left, wherever it hid. Ten rounds
// each; with DLAUNCH_TEST_FULL=1 a hundred, and how long it took.
#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;

int rounds() { return is_full() ? 100 : 10; }
constexpr int workers = 3;
/// Each worker, its child, and its grandchild in a session of its own; the front and the agent.
constexpr std::size_t processes = 3 * workers + 2;

std::vector<std::string> trees(const std::string& token) {
  return {"--standalone", "--nproc-per-node", std::to_string(workers), victim(), "tree", token};
}

void start(Job& job, const std::string& token) {
  REQUIRE(job.saw("READY", workers));
  const auto found = processes_with(token);
  REQUIRE_MESSAGE(found.size() == processes, job.out());
}

/// From the kill to the moment when nothing is left, over all rounds.
class Times {
 public:
  void killed() { killed_ = Clock::now(); }
  void gone() { times_.push_back(Clock::now() - killed_); }
  /// Prints what a table wants to know.
  void print(const char* what) {
    if (!is_full() || times_.empty()) return;
    const auto ms = [](Clock::duration time) {
      return std::chrono::duration<double, std::milli>(time).count();
    };
    std::sort(times_.begin(), times_.end());
    std::printf("kill -9 of %s to everything gone: p50 %.1f ms, max %.1f ms, %zu rounds\n", what,
                ms(times_[times_.size() / 2]), ms(times_.back()), times_.size());
  }

 private:
  Clock::time_point killed_;
  std::vector<Clock::duration> times_;
};

}  // namespace

TEST_CASE("kill -9 a worker") {
  Times times;
  for (int round = 0; round < rounds(); ++round) {
    const std::string token = unique_token();
    Job job(trees(token));
    start(job, token);
    const auto at = job.out().find("[1] READY ");
    REQUIRE(at != std::string::npos);
    const pid_t pid = std::stoi(job.out().substr(at + 10));
    times.killed();
    REQUIRE(::kill(pid, SIGKILL) == 0);
    CHECK(job.wait().code == 137);
    times.gone();
    CHECK(job.err().find("\n  cause : rank 1 ") != std::string::npos);
    CHECK(job.err().find("SIGKILL") != std::string::npos);
    CHECK(processes_with(token).empty());
  }
  times.print("a worker");
}

TEST_CASE("kill -9 the agent") {
  Times times;
  const std::string folder = "/tmp/" + unique_token();
  REQUIRE(::mkdir(folder.c_str(), 0700) == 0);
  for (int round = 0; round < rounds(); ++round) {
    const std::string token = unique_token();
    Job job(trees(token), {{"TMPDIR", folder}});
    start(job, token);
    const pid_t agent = job.agent();
    times.killed();
    REQUIRE(::kill(agent, SIGKILL) == 0);
    CHECK(job.wait().code == 70);
    times.gone();
    CHECK(job.err() == "dlaunch: the agent (pid " + std::to_string(agent) +
                           ") was killed by SIGKILL; its workers were killed\n");
    CHECK(processes_with(token).empty());
  }
  times.print("the agent");
  CHECK_MESSAGE(::rmdir(folder.c_str()) == 0, "files were left behind in " << folder);
}

TEST_CASE("kill -9 the front") {
  Times times;
  for (int round = 0; round < rounds(); ++round) {
    const std::string token = unique_token();
    Job job(trees(token));
    start(job, token);
    times.killed();
    job.send(SIGKILL);
    CHECK(job.wait().signal == SIGKILL);
    CHECK(all_gone(token));
    times.gone();
  }
  times.print("the front");
}

TEST_CASE("a stopped agent cannot hold up the end") {
  const std::string token = unique_token();
  auto line = trees(token);
  line.insert(line.begin(), {"--shutdown-timeout", "0"});
  Job job(line);
  start(job, token);
  const std::string agent = "dlaunch: the agent (pid " + std::to_string(job.agent()) + ") ";
  REQUIRE(::kill(job.agent(), SIGSTOP) == 0);
  job.send(SIGTERM);
  REQUIRE(job.saw(agent + "stands still and does not take SIGTERM; it is killed, with all that it "
                          "started, in "));
  SUBCASE("one signal, and time") {}
  SUBCASE("a second one") { job.send(SIGTERM); }
  CHECK(job.wait().code == 143);
  CHECK(count(job.err(), agent + "stands still; it is killed, with all that it started\n") == 1);
  CHECK(processes_with(token).empty());
}

TEST_CASE("a stopped agent that goes on ends the job as if nothing had been") {
  const std::string token = unique_token();
  Job job(trees(token));
  start(job, token);
  REQUIRE(::kill(job.agent(), SIGSTOP) == 0);
  job.send(SIGINT);
  REQUIRE(job.saw("stands still and does not take SIGINT"));
  REQUIRE(::kill(job.agent(), SIGCONT) == 0);
  CHECK(job.wait().code == 130);
  CHECK(job.err().find("; it is killed, with all that it started\n") == std::string::npos);
  CHECK(processes_with(token).empty());
}

TEST_CASE("PID 1: a thousand zombies, signals handed on, the second one escalates") {
  const std::string token = unique_token();
  const std::vector<std::string> arguments = {
      "--pid", "--fork", "--mount-proc", dlaunch_path(), "--shutdown-timeout",
      "600",   victim(), "zombies",      token,          "1000"};
  Job probe({"--pid", "--fork", "--mount-proc", "true"}, {}, "unshare");
  if (probe.wait().code != 0) {
    return testing::skipped("no right to make a pid namespace");
  }
  Job job(arguments, {}, "unshare");
  REQUIRE(job.saw("READY"));
  const auto found = processes_with(token);
  const auto is_front = [](pid_t pid) { return pid_inside(pid) == 1; };
  const auto front = std::find_if(found.begin(), found.end(), is_front);
  REQUIRE(front != found.end());
  for (const pid_t pid : found) CHECK(zombies_reaped(pid));
  REQUIRE(::kill(*front, SIGTERM) == 0);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("PID 1 with a worker that ignores SIGTERM") {
  Job probe({"--pid", "--fork", "--mount-proc", "true"}, {}, "unshare");
  if (probe.wait().code != 0) {
    return testing::skipped("no right to make a pid namespace");
  }
  const std::string token = unique_token();
  Job job({"--pid", "--fork", "--mount-proc", dlaunch_path(), "--shutdown-timeout", "600",
           "--nproc-per-node", "2", victim(), "stubborn", token},
          {}, "unshare");
  REQUIRE(job.saw("READY", 2));
  const auto found = processes_with(token);
  const auto front =
      std::find_if(found.begin(), found.end(), [](pid_t pid) { return pid_inside(pid) == 1; });
  REQUIRE(front != found.end());
  REQUIRE(::kill(*front, SIGTERM) == 0);
  REQUIRE(job.saw("got " + std::to_string(SIGTERM), 2));
  REQUIRE(::kill(*front, SIGTERM) == 0);
  CHECK(job.wait().code == 143);
  CHECK(all_gone(token));
}

}  // namespace dlaunch::process_test
