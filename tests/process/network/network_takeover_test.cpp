// The node that hosts the job is lost, and another one hosts it.
#include "tests/process/network/network_job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/secret_file.hpp"

#include <csignal>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::is_full;

constexpr auto hosts_now = "this node hosts the job from now on";

/// So many nodes in their first epoch, of which one is enough.
struct Hosted {
  explicit Hosted(int nodes, const NetworkJob::Strings& options = {})
      : network(nodes), job(network, "1:" + std::to_string(nodes), options) {
    for (int node = 0; node < nodes; ++node) job.add();
    for (int node = 0; node < nodes; ++node) REQUIRE_MESSAGE(job.runs(node, 1), job.said());
    // The successors are told right after the places.
    for (int node = 0; node < nodes; ++node) REQUIRE_MESSAGE(job.goes_on(node, 5), job.said());
  }
  /// Node b hosts, and it is at work with those behind it.
  void goes_on_at_b() {
    const Stretch taken("from the loss of the host until all others are at work again");
    REQUIRE_MESSAGE(job[1].saw(hosts_now), job.said());
    for (int node = 1; node < job.size(); ++node) REQUIRE_MESSAGE(job.runs(node, 2), job.said());
    taken.ended();
    for (int node = 1; node < job.size(); ++node) CHECK_MESSAGE(job.goes_on(node), job.said());
  }
  void end() {
    job.stop();
    job.check_places();
  }

  Network network;
  NetworkJob job;
};

}  // namespace

TEST_CASE("kill -9 of the agent that hosts: another node hosts the job") {
  NetworkJob::Strings options = {"--nproc-per-node", "2"};
  const testing::SecretFile secret(
      "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff");
  SUBCASE("") {}
  SUBCASE("with a secret") { options.insert(options.end(), {"--secret-file", secret.path()}); }
  Hosted hosted(3, options);
  NetworkJob& job = hosted.job;
  ::kill(job[0].agent(), SIGKILL);
  job[0].wait();
  hosted.goes_on_at_b();
  CHECK(job.processes(0).empty());
  CHECK(contains(job[2].err(), "node b hosts the job now"));
  // It hosts as well as the first one did.
  job.signal_all(2, SIGKILL);
  CHECK_MESSAGE(job.runs(1, 3), job.said());
  hosted.end();
}

TEST_CASE("ranks that lose their store with its host: those of the next epoch have another") {
  Network network(3);
  NetworkJob job(network, "1:3", {"--nproc-per-node", "2"});
  // In the first epoch they make calls until one fails.
  const std::string programs = DLAUNCH_BINARY_DIR;
  job.work({"/bin/bash", "-c",
            "[ $DLAUNCH_WORKER_EPOCH -gt 1 ] && exec " + programs +
                "/bin/examples/all_reduce; exec " + programs + "/tests/stuck_rank compute $0 100"});
  for (int node = 0; node < 3; ++node) job.add();
  for (int node = 0; node < 3; ++node) REQUIRE_MESSAGE(job[node].saw("READY", 2), job.said());
  ::kill(job[0].agent(), SIGKILL);
  for (const int node : {1, 2}) CHECK_MESSAGE(job[node].wait().code == 0, job.said());
  CHECK_MESSAGE(contains(job[1].out(), "4 ranks, mean 2.5"), job.said());
  job[0].wait();
}

TEST_CASE("a spare follows to the new host, and takes the lost one's place") {
  Network network(4);
  NetworkJob job(network, "3", {"--spares", "1"});
  for (int node = 0; node < 3; ++node) job.add();
  for (int node = 0; node < 3; ++node) REQUIRE_MESSAGE(job.runs(node, 1), job.said());
  job.add();
  REQUIRE_MESSAGE(job[3].saw("node d is a spare"), job.said());
  ::kill(job[0].agent(), SIGKILL);
  job[0].wait();
  for (int node = 1; node < 4; ++node) REQUIRE_MESSAGE(job.runs(node, 2), job.said());
  CHECK(contains(job[1].err(), hosts_now));
  job.stop();
  job.check_places();
}

TEST_CASE("the host's network is cut: it ends, and the others go on") {
  Hosted hosted(3);
  NetworkJob& job = hosted.job;
  hosted.network.cut(0);
  hosted.goes_on_at_b();
  CHECK(job[0].wait().code == 79);
  CHECK_MESSAGE(contains(job[0].err(), "2 of the 3 nodes of epoch 1 are out of reach"), job.said());
  CHECK(job.processes(0).empty());
  hosted.network.heal(0);
  for (const int node : {1, 2}) CHECK(job.goes_on(node));
  hosted.end();
}

TEST_CASE("the host stands still for too long: when it wakes, it ends its workers and itself") {
  Hosted hosted(3);
  NetworkJob& job = hosted.job;
  const pid_t host = job[0].agent();
  ::kill(host, SIGSTOP);
  hosted.goes_on_at_b();
  ::kill(host, SIGCONT);
  CHECK(job[0].wait().code == 79);
  CHECK_MESSAGE(contains(job[0].err(), "are out of reach, and may go on without this one"),
                job.said());
  CHECK(job.processes(0).empty());
  CHECK(job.goes_on(1));
  hosted.end();
}

TEST_CASE("a job whose workers have ended needs no other host") {
  Network network(3);
  NetworkJob job(network, "2:3", {}, 5);
  for (int node = 0; node < 3; ++node) job.add();
  for (int node = 0; node < 3; ++node) CHECK(job[node].wait().code == 0);
  CHECK_MESSAGE(!contains(job.said(), "hosts the job"), job.said());
}

TEST_CASE("host and successor are lost at once: the third node hosts" * doctest::skip(!is_full())) {
  Hosted hosted(5);
  NetworkJob& job = hosted.job;
  ::kill(job[0].agent(), SIGKILL);
  ::kill(job[1].agent(), SIGKILL);
  REQUIRE_MESSAGE(job[2].saw("no node hosts the job there"), job.said());
  REQUIRE_MESSAGE(job[2].saw(hosts_now), job.said());
  for (int node = 2; node < 5; ++node) REQUIRE_MESSAGE(job.runs(node, 2), job.said());
  hosted.end();
}

TEST_CASE("the host is lost while an epoch is being ended" * doctest::skip(!is_full())) {
  Network network(5);
  NetworkJob job(network, "2:5", {"--shutdown-timeout", "5"});
  job.work({victim(), "stubborn"});
  for (int node = 0; node < 5; ++node) job.add();
  for (int node = 0; node < 5; ++node) REQUIRE_MESSAGE(job[node].saw("READY"), job.said());
  job.signal_all(4, SIGKILL);
  for (int node = 1; node < 4; ++node) REQUIRE_MESSAGE(job[node].saw("node e is lost"), job.said());
  ::kill(job[0].agent(), SIGKILL);
  REQUIRE_MESSAGE(job[1].saw(hosts_now), job.said());
  for (int node = 1; node < 4; ++node) REQUIRE_MESSAGE(job[node].saw("READY", 2), job.said());
}

TEST_CASE("half of the nodes are cut off: they end, and the host's half goes on" *
          doctest::skip(!is_full())) {
  Hosted hosted(4);
  NetworkJob& job = hosted.job;
  for (const int node : {1, 2}) hosted.network.cut(node);
  for (const int node : {0, 3}) REQUIRE_MESSAGE(job.runs(node, 2), job.said());
  CHECK(job[1].wait().code == 79);
  CHECK_MESSAGE(contains(job[1].err(), "only 1 of the 4 nodes of epoch 1 have come to node b"),
                job.said());
  REQUIRE_MESSAGE(job[2].saw(hosts_now), job.said());
  CHECK(job[2].wait().code == 79);
  for (const int node : {0, 3}) CHECK(job.goes_on(node));
  hosted.end();
}

}  // namespace dlaunch::process_test
