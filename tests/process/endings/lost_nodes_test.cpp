// Nodes that are gone, or stand still: what the ranks of the others are told, and what their own.
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <csignal>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::failure_block;
using testing::field_of;

std::string host_name() {
  char name[256] = {};
  REQUIRE(::gethostname(name, sizeof name - 1) == 0);
  return name;
}

/// Nodes a and b, with ranks 0-1 and 2-3; of the first that is started it is certain that it hosts.
class Two : public Nodes {
 public:
  explicit Two(Strings program, const std::string& host = "a")
      : Nodes("2", std::move(program),
              {"--nproc-per-node", "2", "--rdzv-conf", "keep_alive_interval=300ms",
               "--failure-grace", "5s"}),
        host_is_a_(host == "a") {
    add({"--node-id", host});
    REQUIRE((*this)[0].saw("1 of 2 nodes"));
    add({"--node-id", host == "a" ? "b" : "a"});
  }
  Job& a() { return (*this)[host_is_a_ ? 0 : 1]; }
  Job& b() { return (*this)[host_is_a_ ? 1 : 0]; }
  /// All ranks wait in their call, or are about to.
  void require_ready() {
    REQUIRE(a().saw("READY", 2));
    REQUIRE(b().saw("READY", 2));
  }
  std::string said() { return "-- a:\n" + a().err() + "-- b:\n" + b().err(); }

 private:
  bool host_is_a_;
};

Strings stuck(const std::string& mode) {
  return {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), "60"};
}

/// Each rank of node a says that it, or who told it, has lost one of node b: rank, host and cause.
void check_ranks_of_a(Two& nodes, const std::string& cause) {
  INFO(nodes.said());
  const std::string where = " on " + host_name() + ": " + cause;
  for (const char* rank : {"[a:0] ", "[a:1] "}) {
    CAPTURE(rank);
    bool told = false;
    std::istringstream lines(nodes.a().err());
    for (std::string line; std::getline(lines, line);) {
      told = told || (line.starts_with(rank) && (contains(line, " lost rank 2" + where) ||
                                                 contains(line, " lost rank 3" + where)));
    }
    CHECK(told);
  }
  CHECK_FALSE(contains(nodes.a().err(), "closed the connection"));
}

/// A node is the cause, and no rank.
void check_block(Two& nodes, const Job& job, const std::string& cause) {
  INFO(nodes.said());
  CHECK(contains(job.err(), " FAILED\n"));
  CHECK(field_of(failure_block(job.err()), "cause").starts_with(cause));
}

}  // namespace

TEST_CASE("a node stands still: the others' ranks name the rank, its host and the cause") {
  Two nodes(stuck("compute"));
  nodes.require_ready();
  const pid_t agent = nodes.b().agent();
  REQUIRE(::kill(agent, SIGSTOP) == 0);
  CHECK(nodes.a().wait().code == 79);
  check_ranks_of_a(nodes, "node b is lost: silent for ");
  check_block(nodes, nodes.a(), "node b is lost: silent for ");
  // No survivor is blamed on the way.
  CHECK_FALSE(contains(nodes.a().err(), "dlaunch: rank "));

  REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK(nodes.b().wait().code == 79);
  INFO(nodes.said());
  CHECK(contains(nodes.b().err(), "dlaunch: this node stood still for "));
  CHECK(contains(failure_block(nodes.b().err()), "\n  cause : "));
}

TEST_CASE("a node stands still while its ranks go on: the others are told all the same") {
  const testing::TemporaryFolder folder;
  Two nodes({DLAUNCH_BINARY_DIR "/tests/steady", (folder.path() / "end").string(), "5"});
  REQUIRE(nodes.a().saw("rank 0 tick 2"));
  REQUIRE(nodes.b().saw("rank 3 tick 2"));
  REQUIRE(::kill(nodes.b().agent(), SIGSTOP) == 0);
  CHECK(nodes.a().wait().code == 79);
  check_ranks_of_a(nodes, "node b is lost: silent for ");
}

TEST_CASE("the node that hosts stands still: the same, and it says what it did") {
  Two nodes(stuck("compute"), "b");
  nodes.require_ready();
  const pid_t agent = nodes.b().agent();
  REQUIRE(::kill(agent, SIGSTOP) == 0);
  CHECK(nodes.a().wait().code == 79);
  check_ranks_of_a(nodes, "node b is lost: ");
  check_block(nodes, nodes.a(), "the node that hosts the job is lost: ");

  REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK(nodes.b().wait().code == 79);
  INFO(nodes.said());
  CHECK(contains(nodes.b().err(), "dlaunch: this node stood still for "));
  CHECK(contains(nodes.b().err(),
                 "node a is lost: its connection broke while the rendezvous stood "
                 "still for "));
  CHECK_FALSE(contains(nodes.b().err(), "lost the rendezvous of this node"));
}

TEST_CASE("kill -9 of a launcher: the others' ranks are told that the node is gone") {
  Two nodes(stuck("compute"));
  nodes.require_ready();
  ::kill(nodes.b().agent(), SIGKILL);
  nodes.b().wait();
  CHECK(nodes.a().wait().code == 79);
  check_ranks_of_a(nodes, "node b is lost: its connection broke");
  check_block(nodes, nodes.a(), "node b is lost: its connection broke");
  CHECK_FALSE(contains(nodes.a().err(), "dlaunch: rank "));
}

TEST_CASE("kill -9 of the launcher that hosts: the others' ranks are told so") {
  Two nodes(stuck("compute"), "b");
  nodes.require_ready();
  ::kill(nodes.b().agent(), SIGKILL);
  nodes.b().wait();
  CHECK(nodes.a().wait().code == 79);
  check_ranks_of_a(nodes, "node b is lost: ");
}

TEST_CASE("two ranks that disagree are both the cause, the same on both nodes") {
  for (int round = 0; round < 3; ++round) {
    Nodes nodes("2", stuck("differ"));
    Job& a = nodes.add({"--node-id", "a"});
    Job& b = nodes.add({"--node-id", "b"});
    CHECK(a.wait().code == 1);
    CHECK(b.wait().code == 1);
    INFO("-- a:\n" << a.err() << "-- b:\n" << b.err());
    const std::string cause = "rank 0 on " + host_name() + " and rank 1 on " + host_name() +
                              " made calls that do not agree";
    for (const Job* job : {&a, &b}) {
      CHECK(contains(job->err(), "dlaunch: " + cause));
      CHECK(field_of(failure_block(job->err()), "cause") == cause);
    }
  }
}

TEST_CASE("who left early is the cause from the first line on, and on its own node, too") {
  Nodes nodes("2", stuck("exit"));
  Job& a = nodes.add({"--node-id", "a"});
  Job& b = nodes.add({"--node-id", "b"});
  CHECK(a.wait().code == 75);
  CHECK(b.wait().code == 75);
  INFO("-- a:\n" << a.err() << "-- b:\n" << b.err());
  for (const Job* job : {&a, &b}) {
    CHECK(contains(job->err(),
                   "dlaunch: rank 1 on " + host_name() + " exited with 0 before the others"));
    CHECK_FALSE(contains(job->err(), "dlaunch: rank 0"));
    CHECK(contains(job->err(), " FAILED\n"));
  }
  for (const Job* job : {&a, &b}) {
    CHECK(field_of(failure_block(job->err()), "cause").starts_with("rank 1 on "));
  }
}

}  // namespace dlaunch::process_test
