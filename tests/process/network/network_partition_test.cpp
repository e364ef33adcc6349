// A network that is cut, heals, or loses packets.
#include "tests/process/network/network_job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <csignal>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::is_full;

/// Three nodes that need only one, in their first epoch.
struct Three {
  explicit Three(NetworkJob::Strings options = {}) : job(network, "1:3", std::move(options)) {
    for (int node = 0; node < 3; ++node) job.add();
    for (int node = 0; node < 3; ++node) REQUIRE_MESSAGE(job.runs(node, 1), job.said());
  }
  void end() {
    job.stop();
    job.check_places();
  }

  Network network{3};
  NetworkJob job;
};

/// Whether a connection to the host is being made where this process is.
bool is_connecting(pid_t process) {
  std::ifstream connections("/proc/" + std::to_string(process) + "/net/tcp");
  for (std::string line; std::getline(connections, line);) {
    if (contains(line, ":72D8 02 ")) return true;  // Port 29400, SYN_SENT.
  }
  return false;
}

/// The node is lost, the others go on without it, and with it when `heal` has been called.
void lost_and_back(NetworkJob& job, int node, const std::function<void()>& heal) {
  const Stretch noticed("from the cut until the others go on without the node");
  REQUIRE_MESSAGE(job[0].saw("node c is lost"), job.said());
  REQUIRE_MESSAGE((job.runs(0, 2) && job.runs(1, 2)), job.said());
  noticed.ended();
  CHECK(job.goes_on(0));
  const Stretch back("from its healing until all three are at work");
  heal();
  for (int each = 0; each < 3; ++each) REQUIRE_MESSAGE(job.runs(each, 3), job.said());
  back.ended();
  CHECK(job.goes_on(node));
}

}  // namespace

TEST_CASE("a partition: a short one is nothing, a long one costs the node its place") {
  Three three;
  NetworkJob& job = three.job;
  three.network.cut(2);
  REQUIRE(job.goes_on(0, 10));
  three.network.heal(2);
  REQUIRE_MESSAGE(job.all_go_on(), job.said());
  CHECK_MESSAGE(!contains(job.said(), "lost"), job.said());
  CHECK_MESSAGE(!contains(job.said(), "place 2"), job.said());

  three.network.cut(2);
  lost_and_back(job, 2, [&] { three.network.heal(2); });
  three.end();
}

TEST_CASE("a partition of a job of fixed size: the ranks of both sides are told whom they lost") {
  Network network(2);
  NetworkJob job(network, "2", {"--nproc-per-node", "2"}, 60);
  job.work({DLAUNCH_BINARY_DIR "/tests/stuck_rank", "compute"});
  job.add();
  job.add();
  for (int node = 0; node < 2; ++node) REQUIRE_MESSAGE(job[node].saw("READY", 2), job.said());
  network.cut(1);
  CHECK(job[0].wait().code == 79);
  CHECK(job[1].wait().code == 79);
  INFO(job.said());
  for (const char* rank : {"[a:0] ", "[a:1] "}) {
    CAPTURE(rank);
    bool told = false;
    std::istringstream lines(job[0].err());
    for (std::string line; std::getline(lines, line);) {
      const std::string why = " on b: node b is lost: silent for ";
      told = told || (line.starts_with(rank) && (contains(line, " lost rank 2" + why) ||
                                                 contains(line, " lost rank 3" + why)));
    }
    CHECK(told);
  }
  CHECK((contains(job[1].err(), ": rank 2 lost rank 0 on a: node a is lost: ") ||
         contains(job[1].err(), ": rank 2 lost rank 1 on a: node a is lost: ")));
  for (int node = 0; node < 2; ++node) {
    CHECK(testing::failure_block(job[node].err()).find("\n  cause : ") != std::string::npos);
    CHECK_FALSE(contains(job[node].err(), "dlaunch: rank "));
  }
}

TEST_CASE("a partition of one direction") {
  Three three;
  SUBCASE("what the node says is lost") { three.network.cut_from(2); }
  if (is_full()) {
    SUBCASE("what the node is told is lost") { three.network.cut_to(2); }
  }
  lost_and_back(three.job, 2, [&] { three.network.heal(2); });
  three.end();
}

TEST_CASE("three packets of ten are lost for a while: the job goes on") {
  Three three({"--rdzv-conf", default_lease});
  NetworkJob& job = three.job;
  // Not on the host's own line, too: each packet is to be lost once.
  for (const int node : {1, 2}) three.network.drop(node, 30);
  REQUIRE_MESSAGE(job.goes_on(0, is_full() ? 150 : 40), job.said());
  for (int i = 1; is_full() && i < 4; ++i) REQUIRE_MESSAGE(job.goes_on(0, 150), job.said());
  for (const int node : {1, 2}) three.network.heal(node);
  REQUIRE_MESSAGE(job.all_go_on(), job.said());
  MESSAGE("nodes were lost " << count(job[0].err(), "is lost") << " times");
  three.end();
}

TEST_CASE("a node that is cut off for good ends its workers and itself; the others go on" *
          doctest::skip(!is_full())) {
  Three three;
  NetworkJob& job = three.job;
  three.network.cut(2);
  const Stretch alone("from the cut until the node has ended");
  // It would host, if there were enough others.
  REQUIRE_MESSAGE(job[2].saw("this node hosts the job from now on"), job.said());
  CHECK(job.processes(2).size() == 2);
  CHECK(job[2].wait().code == 79);
  alone.ended();
  INFO(job.said());
  CHECK(contains(job[2].err(), "the node that hosts the job is lost"));
  CHECK(job.processes(2).empty());
  REQUIRE(job.runs(0, 2));
  REQUIRE(job.runs(1, 2));
  CHECK(job.goes_on(1));
  three.end();
}

TEST_CASE("half-open: both ends have given up a connection of which neither heard the end" *
          doctest::skip(!is_full())) {
  // At the default lease there is time between the two.
  Three three({"--rdzv-conf", default_lease});
  NetworkJob& job = three.job;
  three.network.cut(2);
  const Stretch noticed("from the cut until the node tries to connect anew, in vain");
  // Before it gives the host up, which is never asked again.
  for (const auto until = Clock::now() + patience; !is_connecting(job[2].pid());) {
    REQUIRE_MESSAGE(Clock::now() < until, job.said());
    std::this_thread::yield();
  }
  noticed.ended();
  lost_and_back(job, 2, [&] { three.network.heal(2); });
  three.end();
}

}  // namespace dlaunch::process_test
