// Nodes that wait to take the place of others: --spares. The first node hosts the rendezvous.
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"

#include <csignal>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <sys/types.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;

/// Two nodes, a and b, at work, and a spare, c.
struct WithSpare {
  explicit WithSpare(const std::string& mode, const std::string& sign = "READY")
      : token(unique_token()),
        nodes("2", {victim(), mode, token, "0"}, {"--spares", "1"}, folder.environment()) {
    nodes.add({"--node-id", "a"});
    REQUIRE(a().saw("1 of 2 nodes"));
    nodes.add({"--node-id", "b"});
    REQUIRE(a().saw(sign));
    REQUIRE(b().saw(sign));
    nodes.add({"--node-id", "c"});
    const std::string waits =
        "node c is a spare (1 of 1): it takes the place of a node that is lost";
    REQUIRE(c().saw(waits));
    REQUIRE(a().saw(waits));
  }
  Job& a() { return nodes[0]; }
  Job& b() { return nodes[1]; }
  Job& c() { return nodes[2]; }

  Folder folder;
  std::string token;
  Nodes nodes;
};

pid_t worker_of(const Job& job) { return children_of(job.agent()).front(); }

}  // namespace

TEST_CASE("a spare takes the place of a lost node at once, with its rank") {
  WithSpare job("ticking", "tick");
  ::kill(job.b().agent(), SIGKILL);
  job.b().wait();
  REQUIRE(job.c().saw("place 2 1 2 beside 0"));
  REQUIRE(job.a().saw("place 2 0 2 beside 0"));
  CHECK_FALSE(contains(job.a().err(), "restart 1"));
  // No spare is left now: a node that is stopped ends the job.
  job.c().send(SIGTERM);
  CHECK(job.c().wait().code == 143);
  CHECK(job.a().wait().code == 143);
  CHECK(all_gone(job.token));
}

TEST_CASE("a node that is stopped is replaced by a spare") {
  WithSpare job("ticking", "tick");
  job.b().send(SIGTERM);
  CHECK(job.b().wait().code == 143);
  REQUIRE(job.c().saw("place 2 1 2 beside 0"));
  job.a().send(SIGTERM);
  CHECK(job.a().wait().code == 143);
  CHECK(job.c().wait().code == 143);
  CHECK(all_gone(job.token));
}

TEST_CASE("a spare that dies or is stopped is told of, and the job goes on") {
  WithSpare job("wait");
  SUBCASE("it dies") {
    ::kill(job.c().agent(), SIGKILL);
    job.c().wait();
    REQUIRE(job.a().saw("node c is lost: its connection broke; it was a spare"));
  }
  SUBCASE("it is stopped") {
    job.c().send(SIGTERM);
    CHECK(job.c().wait().code == 143);
    REQUIRE(job.a().saw("node c left: stopped by SIGTERM; it was a spare"));
  }
  // There is room for another one.
  Job& d = job.nodes.add({"--node-id", "d"});
  REQUIRE(d.saw("node d is a spare (1 of 1)"));
  CHECK_FALSE(contains(job.a().err(), "epoch 2"));
  job.a().send(SIGTERM);
  CHECK(job.a().wait().code == 143);
  CHECK(job.b().wait().code == 143);
  CHECK(d.wait().code == 143);
  CHECK(all_gone(job.token));
}

TEST_CASE("a spare ends with the job, and with its code") {
  WithSpare job("wait");
  const std::string shown = status(job.folder, {});
  INFO(shown);
  CHECK(contains(shown, "\nsaid last: node c is a spare (1 of 1): it takes the place"));
  Job& second = job.nodes.add({"--node-id", "d"});
  CHECK(second.wait().code == 64);
  CHECK(contains(second.err(), ", and its 1 spare is here already; end it first"));
  ::kill(worker_of(job.b()), SIGKILL);
  CHECK(job.a().wait().code == 137);
  CHECK(job.b().wait().code == 137);
  CHECK(job.c().wait().code == 137);
  CHECK(contains(job.c().err(), "the job ends: rank 1 on "));
  CHECK_FALSE(contains(job.c().out(), "READY"));
  CHECK(all_gone(job.token));
}

TEST_CASE("two nodes are lost at once, and there is one spare: the job ends") {
  const std::string token = unique_token();
  Nodes nodes("3", {victim(), "wait", token}, {"--spares", "1"});
  nodes.add({"--node-id", "a"});
  REQUIRE(nodes[0].saw("1 of 3 nodes"));
  nodes.add({"--node-id", "b"});
  nodes.add({"--node-id", "c"});
  for (std::size_t i = 0; i < 3; ++i) REQUIRE(nodes[i].saw("READY"));
  nodes.add({"--node-id", "d"});
  REQUIRE(nodes[3].saw("node d is a spare (1 of 1)"));
  const pid_t b = nodes[1].agent(), c = nodes[2].agent();
  ::kill(b, SIGKILL);
  ::kill(c, SIGKILL);
  nodes[1].wait();
  nodes[2].wait();
  CHECK(nodes[0].wait().code == 79);
  CHECK(nodes[3].wait().code == 79);
  INFO(nodes[3].err());
  CHECK(contains(nodes[3].err(), " is lost: its connection broke"));
  CHECK_FALSE(contains(nodes[3].out(), "READY"));
  CHECK(all_gone(token));
}

TEST_CASE("a spare is checked when it comes, and again before its workers start") {
  const std::string token = unique_token();
  Nodes nodes("2", {victim(), "wait", token}, {"--spares", "2"});
  nodes.add({"--node-id", "a"});
  REQUIRE(nodes[0].saw("1 of 2 nodes"));
  Job& unfit = nodes.add({"--node-id", "x", "--node-check", "echo no GPU; exit 3"});
  CHECK(unfit.wait().code == 79);
  CHECK(contains(unfit.err(), "the check (--node-check) exited with 3: no GPU"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(b.saw("READY"));
  // Its check succeeds once.
  const std::string file = std::string(DLAUNCH_BINARY_DIR) + "/spare-" + token;
  std::ofstream(file) << "fit";
  Job& c = nodes.add({"--node-id", "c", "--node-check", "rm " + file + " || exit 3"});
  REQUIRE(c.saw("node c is a spare (1 of 2)"));
  Job& d = nodes.add({"--node-id", "d"});
  REQUIRE(d.saw("node d is a spare (2 of 2)"));
  ::kill(b.agent(), SIGKILL);
  b.wait();
  CHECK(c.wait().code == 79);
  REQUIRE(d.saw("READY"));
  REQUIRE(nodes[0].saw("node c left: it is not fit for work: its check exited with 3"));
  REQUIRE(nodes[0].saw("epoch 3: 2 nodes, 2 workers"));
  CHECK_FALSE(contains(nodes[0].err(), "node x"));
  nodes[0].send(SIGTERM);
  CHECK(nodes[0].wait().code == 143);
  CHECK(d.wait().code == 143);
  CHECK(all_gone(token));
}

}  // namespace dlaunch::process_test
