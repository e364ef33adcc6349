// A stop signal for all nodes of a job at once, as scancel and a drain send it: nobody survives,
// and all end with the signal's code. DLAUNCH_TEST_FULL=1 does it a hundred times a kind, and has
// agents stand still for longer than anything waits.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"

#include <csignal>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

const int rounds = testing::is_full() ? 100 : 2;

void send_all(const std::vector<pid_t>& pids, int signal_number) {
  for (const pid_t pid : pids) REQUIRE(::kill(pid, signal_number) == 0);
}

void stand_still(const std::vector<pid_t>& pids, Clock::duration length) {
  send_all(pids, SIGSTOP);
  std::this_thread::sleep_for(length);
  send_all(pids, SIGCONT);
}

/// Each has started its workers once, and no more.
void stop_all(const std::deque<Job*>& jobs, const std::string& token, int signal_number) {
  for (Job* job : jobs) REQUIRE_MESSAGE(job->saw("READY"), job->err());
  for (const Job* job : jobs) job->send(signal_number);
  for (Job* job : jobs) {
    const int code = job->wait().code;
    INFO(job->err());
    CHECK(code == 128 + signal_number);
    CHECK(count(job->out(), "READY") == 1);
  }
  CHECK(all_gone(token));
}

void stop_at_a_daemon(const std::string& nnodes, int signal_number) {
  Daemon daemon;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const std::string token = unique_token();
    std::deque<Job> jobs;
    for (const char* id : {"a", "b", "c"}) {
      jobs.emplace_back(daemon.line("j" + std::to_string(round),
                                    {"--nnodes", nnodes, "--node-id", id},
                                    {victim(), "wait", token}));
    }
    stop_all({&jobs[0], &jobs[1], &jobs[2]}, token, signal_number);
  }
}

void stop_where_one_hosts(const std::string& nnodes, int signal_number) {
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const std::string token = unique_token();
    Nodes nodes(nnodes, {victim(), "wait", token});
    Job& a = nodes.add({"--node-id", "a"});
    REQUIRE(a.saw("3 nodes"));
    Job& b = nodes.add({"--node-id", "b"});
    Job& c = nodes.add({"--node-id", "c"});
    // The one that hosts is the first to get it, the second, or the last.
    std::deque<Job*> order = {&a, &b, &c};
    for (int turn = 0; turn < round % 3; ++turn) {
      order.push_back(order.front());
      order.pop_front();
    }
    stop_all(order, token, signal_number);
  }
}

}  // namespace

TEST_CASE("SIGTERM to all nodes at once, at a daemon: no survivor, one code") {
  SUBCASE("elastic") { stop_at_a_daemon("1:3", SIGTERM); }
  SUBCASE("fixed") { stop_at_a_daemon("3", SIGTERM); }
}

TEST_CASE("SIGINT to all nodes at once, at a daemon: no survivor, one code") {
  SUBCASE("elastic") { stop_at_a_daemon("1:3", SIGINT); }
  SUBCASE("fixed") { stop_at_a_daemon("3", SIGINT); }
}

TEST_CASE("SIGTERM to all nodes at once, one of which hosts: no survivor, one code") {
  SUBCASE("elastic") { stop_where_one_hosts("1:3", SIGTERM); }
  SUBCASE("fixed") { stop_where_one_hosts("3", SIGTERM); }
}

TEST_CASE("SIGINT to all nodes at once, one of which hosts: no survivor, one code") {
  SUBCASE("elastic") { stop_where_one_hosts("1:3", SIGINT); }
  SUBCASE("fixed") { stop_where_one_hosts("3", SIGINT); }
}

TEST_CASE("one node of three is drained: the others go on without it") {
  Daemon daemon;
  const std::string token = unique_token();
  const auto line = [&](const std::string& id) {
    return daemon.line("j", {"--nnodes", "1:3", "--node-id", id}, {victim(), "wait", token});
  };
  Job a(line("a")), b(line("b")), c(line("c"));
  for (Job* job : {&a, &b, &c}) REQUIRE(job->saw("READY"));
  b.send(SIGTERM);
  CHECK(b.wait().code == 143);
  REQUIRE(a.saw("READY", 2));
  REQUIRE(c.saw("READY", 2));
  CHECK(a.err().find("node b left: stopped by SIGTERM") != std::string::npos);
  CHECK(a.err().find("restart") == std::string::npos);
  a.send(SIGTERM);
  c.send(SIGTERM);
  CHECK(a.wait().code == 143);
  CHECK(c.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("an agent that stands still again while it kills its workers joins again") {
  if (!testing::is_full()) return;
  const std::string token = unique_token();
  Nodes nodes("1:2", {victim(), "tree", token}, {"--rdzv-conf", "keep_alive_interval=300ms"});
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("2 nodes"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(b.saw("READY"));
  const std::vector<pid_t> agent = {b.agent()};
  send_all(agent, SIGSTOP);
  REQUIRE(a.saw("READY", 2));  // Without it.
  send_all(agent, SIGCONT);
  REQUIRE(b.saw("this node was silent for too long"));
  stand_still(agent, std::chrono::seconds(6));
  REQUIRE_MESSAGE(b.saw("READY", 2), b.err());
  CHECK(count(b.err(), "do not die of SIGKILL") == 0);
  a.send(SIGTERM);
  b.send(SIGTERM);
  CHECK(a.wait().code == 143);
  CHECK(b.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("a machine that pauses with all agents of a job loses none of them") {
  if (!testing::is_full()) return;
  const std::string token = unique_token();
  Nodes nodes("2", {victim(), "wait", token});
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("2 nodes"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  stand_still({a.agent(), b.agent()}, std::chrono::seconds(11));
  REQUIRE(a.saw("this node stood still for "));
  REQUIRE(b.saw("this node stood still for "));
  a.send(SIGTERM);
  b.send(SIGTERM);
  CHECK(a.wait().code == 143);
  CHECK(b.wait().code == 143);
  CHECK(count(a.err() + b.err(), "lost") == 0);
}

}  // namespace dlaunch::process_test
