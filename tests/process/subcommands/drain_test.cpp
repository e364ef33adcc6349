// dlaunch drain: a host leaves a live job in order, and the others are told why.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"

#include <csignal>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using testing::contains;

namespace {

struct Drained {
  int code = 0;
  std::string out, err;
};

Drained drain(const Folder& folder, Strings arguments = {}) {
  arguments.insert(arguments.begin(), "drain");
  Job asking(std::move(arguments), folder.environment());
  Drained drained;
  drained.code = asking.wait().code;
  drained.out = asking.out();
  drained.err = asking.err();
  return drained;
}

std::string ended(const std::string& node, const std::string& job, const Job& launcher) {
  return "node " + node + " of job " + job + " (pid " + std::to_string(launcher.pid()) +
         ") has ended with 143 (SIGTERM)\n";
}

}  // namespace

TEST_CASE("an elastic job goes on without a host that is drained") {
  Daemon daemon;
  const std::string token = unique_token();
  const Folder here, elsewhere;
  const auto line = [&](const std::string& id) {
    return daemon.line("j", {"--nnodes", "1:3", "--node-id", id}, {victim(), "wait", token});
  };
  Job a(line("a"), elsewhere.environment()), b(line("b"), here.environment()),
      c(line("c"), elsewhere.environment());
  for (Job* job : {&a, &b, &c}) REQUIRE(job->saw("3 nodes"));
  for (Job* job : {&a, &b, &c}) REQUIRE(job->saw("READY"));
  const auto drained = drain(here);
  CHECK(drained.code == 0);
  CHECK(drained.err.empty());
  CHECK(drained.out ==
        "node b leaves job j, which goes on without it, with 2 nodes\n" + ended("b", "j", b));
  CHECK(b.wait().code == 143);
  CHECK(contains(b.err(),
                 "dlaunch: this node is drained (dlaunch drain): the job goes on without it, with "
                 "2 nodes\n"));
  REQUIRE(a.saw("READY", 2));
  REQUIRE(c.saw("READY", 2));
  CHECK(contains(a.err(), "node b left: it is drained (dlaunch drain)"));
  CHECK(contains(c.err(), "node b left: it is drained (dlaunch drain)"));
  // Both of a host leave.
  CHECK(drain(elsewhere, {"j"}).code == 0);
  CHECK(a.wait().code == 143);
  CHECK(c.wait().code == 143);
  CHECK(all_gone(token));
}

TEST_CASE("another job ends on all nodes, which hear why") {
  const std::string token = unique_token();
  const Folder here, elsewhere;
  Nodes nodes("2", {victim(), "tree", token}, {"--rdzv-id", "fixed"}, elsewhere.environment());
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("2 nodes"));
  Job b({"--nnodes", "2", "--rdzv-endpoint", nodes.endpoint(), "--rdzv-id", "fixed", "--node-id",
         "b", victim(), "tree", token},
        here.environment());
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  const auto drained = drain(here, {"fixed"});
  CHECK(drained.code == 0);
  CHECK(drained.out ==
        "node b leaves job fixed, which ends on all nodes: it is not elastic (--nnodes "
        "LEAST:MOST)\n" +
            ended("b", "fixed", b));
  CHECK(a.wait().code == 143);
  CHECK(b.wait().code == 143);
  CHECK(contains(a.err(), "node b left: it is drained (dlaunch drain)"));
  CHECK(all_gone(token));
}

TEST_CASE("a host that is the rendezvous takes an elastic job with it") {
  const std::string token = unique_token();
  const Folder here;
  Nodes nodes("1:2", {victim(), "tree", token},
              {"--rdzv-id", "hosted", "--rdzv-conf", "last_call_timeout=30"});
  Job a({"--nnodes", "1:2", "--rdzv-endpoint", nodes.endpoint(), "--rdzv-id", "hosted",
         "--rdzv-conf", "last_call_timeout=30", "--node-id", "a", victim(), "tree", token},
        here.environment());
  REQUIRE(a.saw("2 nodes"));
  Job& b = nodes.add({"--node-id", "b"});
  REQUIRE(a.saw("READY"));
  REQUIRE(b.saw("READY"));
  const auto drained = drain(here);
  CHECK(drained.code == 0);
  CHECK(
      contains(drained.out, ", which ends on all nodes: this one hosts it, and no dlaunchd does"));
  a.wait();
  b.wait();
  CHECK(contains(b.err(), "it is drained (dlaunch drain)"));
  CHECK(all_gone(token));
}

TEST_CASE("a job of one node ends, in its own time") {
  const Folder folder;
  const std::string token = unique_token();
  Job job(
      {"--rdzv-id", "one", "--nproc-per-node", "1", "--shutdown-timeout", "1h", "--node-id", "n",
       "sh", "-c", "trap '' TERM; echo READY; while :; do read line; done < /dev/zero; : " + token},
      folder.environment());
  REQUIRE(job.saw("READY"));
  // What is asked a second time changes nothing, as a second signal would.
  for (int time = 0; time < 2; ++time) {
    const auto drained = drain(folder, {"--timeout", "100ms"});
    CHECK(drained.code == 1);
    CHECK(drained.out == "node n leaves job one, which ends: it has no other node\n");
    CHECK(contains(drained.err, "dlaunch drain: node n of job one (pid "));
    CHECK(contains(drained.err, ") still runs after 100 ms; dlaunch status shows "));
  }
  Job kill({"stop", "--signal", "SIGKILL"}, folder.environment());
  CHECK(kill.wait().code == 0);
  job.wait();
  CHECK(all_gone(token));
  const auto none = drain(folder, {"one"});
  CHECK(none.code == 69);
  CHECK(contains(none.err, "dlaunch drain: no job 'one' of this user runs on this host"));
}
