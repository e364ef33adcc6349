// dlaunchd with its state on disk, killed at random points: what it has answered, and jobs of
// dlaunch.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes/durable_history.hpp"
#include "tests/process/nodes/durable_node.hpp"
#include "tests/process/nodes/steady_job.hpp"
#include "tests/support/expect.hpp"

#include <csignal>
#include <fstream>
#include <random>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using testing::contains;
using testing::is_full;

namespace {

constexpr int jobs = 4, nodes_per_job = 16;
const int kills = is_full() ? 200 : 8;

/// One node makes a world of its own; returns its epoch.
std::uint64_t run_job(const Address& at, std::uint64_t session) {
  test::AgentPeer agent(at, "epochs", session);
  agent.welcome();
  agent.tell(test::node("alone", 1));
  const auto epoch = agent.hear<message::Admitted>().admission.epoch;
  agent.tell(test::ended(epoch));
  CHECK(agent.hear<message::Finished>().exit_code == 0);
  return epoch;
}

}  // namespace

TEST_CASE("a daemon that is killed at random points loses nothing that it has answered") {
  const Kept kept;
  Daemon daemon(kept.options);
  Gate gate;
  gate.open(address_of(daemon));
  DurableLoad load(gate, jobs, nodes_per_job);
  std::minstd_rand random(static_cast<unsigned>(load.answered()));
  std::uint64_t epoch = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const auto next = run_job(address_of(daemon), static_cast<std::uint64_t>(kill + 1));
    CHECK(next > epoch);
    epoch = next;
    load.await_steps(static_cast<int>(random() % 400));
    daemon.kill();
    daemon.start();
    gate.open(address_of(daemon));
  }
  load.await_steps(jobs * nodes_per_job);
  load.stop_and_check();
}

TEST_CASE("jobs do not notice that the daemon is killed, and find their keys again") {
  const Kept kept;
  Daemon daemon(kept.options);
  const std::string end_file = (kept.folder.path() / "end").string();
  SteadyJob job(daemon.endpoint(), end_file);
  for (int kill = 0; kill < 3; ++kill) {
    daemon.kill();
    daemon.start();
    REQUIRE(job.a.saw("epoch 1 goes on with all 2 nodes", kill + 1));
    job.require_progress();
  }
  job.end(end_file);
  REQUIRE(daemon.job().saw("finished with exit code 0"));
  CHECK_FALSE(contains(job.a.err(), "has forgotten"));
}

TEST_CASE("who comes to a job that ran before a restart waits until its nodes are back") {
  const Kept kept;
  Daemon daemon(kept.options);
  const std::string end_file = (kept.folder.path() / "end").string();
  SteadyJob first(daemon.endpoint(), end_file);
  const pid_t agents[] = {first.a.agent(), first.b.agent()};
  for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGSTOP) == 0);
  daemon.kill();
  daemon.start();
  Job second(daemon.line("j", SteadyJob::options("a"), {"/bin/true"}));
  CHECK_MESSAGE(second.saw("waits for the nodes of the job that runs under this id"), second.err());
  for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK_MESSAGE(second.wait().code == 64, second.err());
  REQUIRE(first.a.saw("epoch 1 goes on with all 2 nodes"));
  first.require_progress();
  first.end(end_file);
}
