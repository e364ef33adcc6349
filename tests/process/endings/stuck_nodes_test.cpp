// Jobs of several nodes that do not go on: one report for all of them, and who left is named.
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <csignal>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using namespace dlaunch::process_test;
using nlohmann::json;

namespace {

using testing::contains;

Strings stuck_rank(const std::string& mode, const std::string& seconds = "60") {
  return {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), seconds};
}

/// With so many ranks each.
class Stuck : public Nodes {
 public:
  Stuck(const Folder& folder, int nodes, int ranks, const std::string& mode, Strings options = {},
        const std::string& seconds = "60")
      : Nodes(std::to_string(nodes), stuck_rank(mode, seconds),
              with_usual(ranks, std::move(options)), folder.environment()) {
    for (int node = 0; node < nodes; ++node) {
      add({"--node-rank", std::to_string(node), "--node-id", "n" + std::to_string(node)});
    }
  }

 private:
  static Strings with_usual(int ranks, Strings options) {
    options.insert(options.begin(), {"--nproc-per-node", std::to_string(ranks), "--stuck-after",
                                     "300ms", "--shutdown-timeout", "1", "--rdzv-id", "demo"});
    return options;
  }
};

void stop(Stuck& nodes, std::size_t count) {
  nodes[0].send(SIGTERM);
  for (std::size_t node = 0; node < count; ++node) nodes[node].wait();
}

}  // namespace

TEST_CASE("four nodes with a rank each: one report, by the first, and all of them know all") {
  const Folder folder;
  Stuck nodes(folder, 4, 1, "compute");
  REQUIRE(nodes[0].saw("ranks 0-2 wait; absent: rank 3 (in no call for "));
  CHECK(contains(nodes[0].err(), "all_reduce #3 (sum, f32, 1 element) [stuck_rank.cpp:"));

  const std::string text = status(folder, {});
  CHECK(contains(text, "job demo, epoch 1, attempt 0: 4 ranks\nstuck: all_reduce #3"));
  const auto told = json::parse(status(folder, {"demo", "--json"}));
  REQUIRE(told["ranks"].size() == 4);
  CHECK(told["missing"].empty());
  CHECK(told["stuck"].is_string());
  for (std::size_t rank = 0; rank < 4; ++rank) {
    CHECK(told["ranks"][rank]["rank"] == rank);
    CHECK(told["ranks"][rank]["behind"] == (rank == 3 ? 1 : 0));
  }
  const auto flight = json::parse(status(folder, {"--flight"}));
  REQUIRE(flight["ranks"].size() == 4);
  CHECK(flight["divergence"]["sequence"] == 3);
  CHECK(flight["divergence"]["absent"] == json::array({3}));

  stop(nodes, 4);
  CHECK(count(nodes[0].err(), "has been waiting for") == 1);
  for (std::size_t node = 1; node < 4; ++node) {
    CHECK(count(nodes[node].err(), "has been waiting for") == 0);
  }
}

TEST_CASE("none of the first node's ranks waits: the others ring") {
  const Folder folder;
  Stuck nodes(folder, 2, 2, "first node");
  REQUIRE(nodes[0].saw("ranks 2-3 wait; absent: rank"));
  CHECK((nodes[0].saw("absent: ranks 0-1 (in no call for ") ||
         nodes[0].saw("; rank 1 (in no call for ")));
  stop(nodes, 2);
}

TEST_CASE("a stopped rank of another node is named as such") {
  const Folder folder;
  Stuck nodes(folder, 2, 2, "stop");
  REQUIRE(nodes[0].saw("ranks 0-2 wait; absent: rank 3 (stopped by a signal, "));
  stop(nodes, 2);
}

TEST_CASE("at the timeout other nodes' agents are asked what absent ranks do") {
  const Folder folder;
  std::string mode, does;
  SUBCASE("stopped") { mode = "stop", does = "(stopped by a signal, "; }
  SUBCASE("computes") { mode = "compute", does = "(in no call for "; }
  CAPTURE(mode);
  Stuck nodes(folder, 2, 2, mode, {}, "1");
  nodes[0].wait();
  nodes[1].wait();
  INFO(nodes[0].err() << nodes[1].err());
  CHECK(contains(nodes[0].err(), " waited 1 s; absent: rank 3 " + does));
  CHECK_FALSE(contains(nodes[0].err(), "in no call now"));
}

TEST_CASE("an agent that does not answer: what was last heard of its ranks is told as that") {
  const Folder folder;
  // Ranks that share memory with it look for themselves.
  Stuck nodes(folder, 2, 1, "compute",
              {"--rdzv-conf", "keep_alive_interval=20s", "--shared-memory", "node"}, "2");
  REQUIRE(nodes[0].saw("READY"));
  REQUIRE(nodes[1].saw("READY"));
  ::kill(nodes[1].agent(), SIGSTOP);
  REQUIRE(nodes[0].saw("rank 0 waited 2 s; absent: rank 1 (last heard of in all_reduce #2"));
}

TEST_CASE("the agent that hosts does not answer: a timeout is no later for that") {
  const Folder folder;
  Stuck nodes(folder, 2, 2, "first node", {"--rdzv-conf", "keep_alive_interval=20s"}, "2");
  REQUIRE(nodes[0].saw("READY", 2));
  REQUIRE(nodes[1].saw("READY", 2));
  ::kill(nodes[0].agent(), SIGSTOP);
  REQUIRE(nodes[1].saw(" waited 2 s; absent: rank 0 ("));
  CHECK_FALSE(contains(nodes[1].err(), "in no call now"));
}

TEST_CASE("a rank that waits in another call is named with where, and one story is told") {
  const Folder folder;
  // The agents say so, or the ranks, which find out that they wait for each other.
  Stuck nodes(folder, 2, 2, "elsewhere", {"--stuck-after", "100ms"});
  REQUIRE(nodes[0].saw("in barrier #1 of 'world/members1(3,0)' [stuck_rank.cpp:"));
  stop(nodes, 2);
  CHECK(count(nodes[0].err(), "has been waiting for") <= 1);
}

TEST_CASE("ranks of several nodes that wait for each other in different calls are told so") {
  for (const std::string mode : {"group", "swapped", "crossed"}) {
    for (const int ranks : {1, 2}) {
      CAPTURE(mode);
      CAPTURE(ranks);
      const Folder folder;
      Stuck nodes(folder, 2, ranks, mode, {"--stuck-after", "20s"});
      for (std::size_t node = 0; node < 2; ++node) {
        CHECK(nodes[node].wait().code == 1);
        CAPTURE(nodes[node].err());
        for (int local = 0; local < ranks; ++local) {
          const int rank = static_cast<int>(node) * ranks + local;
          const std::string begin = ":" + std::to_string(rank) + "] stuck_rank: ";
          const auto at = nodes[node].err().find(begin);
          REQUIRE(at != std::string::npos);
          const std::string said =
              nodes[node].err().substr(at, nodes[node].err().find('\n', at) - at);
          CHECK(contains(said, "the ranks wait for each other: rank"));
          const std::string last = std::to_string(2 * ranks - 1);
          CHECK((contains(said, "rank " + last + " is in ") ||
                 contains(said, "ranks " + last + ", ")));
          CHECK(count(said, " [stuck_rank.cpp:") == 2);
        }
      }
    }
  }
}

TEST_CASE("a communicator's own limit counts where the launcher has none") {
  const Folder folder;
  Stuck nodes(folder, 2, 1, "own limit", {"--stuck-after", "0"});
  REQUIRE(nodes[0].saw("rank 0 waits; absent: rank 1 (in no call for "));
  stop(nodes, 2);
}

TEST_CASE("a node that does not answer is named, by the report and by status") {
  const Folder folder;
  // Its lease is longer than anybody here waits, and the test's end kills it.
  Stuck nodes(folder, 2, 1, "compute", {"--rdzv-conf", "keep_alive_interval=20s"});
  REQUIRE(nodes[1].saw("READY"));
  ::kill(nodes[1].agent(), SIGSTOP);
  REQUIRE(nodes[0].saw("rank 0 waits; absent: rank 1 (node n1 does not answer)"));
  CHECK(contains(status(folder, {}), "2 ranks, of which 1 cannot be seen"));
}

TEST_CASE("who left early is the root cause on every node, whoever else is on its own") {
  const Folder folder;
  int ranks = 0;
  SUBCASE("nobody") { ranks = 1; }
  SUBCASE("one who waits for it, too") { ranks = 2; }
  CAPTURE(ranks);
  Stuck nodes(folder, 2, ranks, "exit");
  CHECK(nodes[0].wait().code == 75);
  CHECK(nodes[1].wait().code == 75);
  const std::string who = "rank " + std::to_string(2 * ranks - 1) + " on ";
  INFO(nodes[0].err() << nodes[1].err());
  CHECK(contains(nodes[0].err(), " lost " + who));
  CHECK(contains(nodes[0].err(), ": exited with 0 before the others"));
  CHECK_FALSE(contains(nodes[0].err(), "closed the connection"));
  for (std::size_t node = 0; node < 2; ++node) {
    // A survivor that was told of it may come first, but not as the cause.
    CHECK_FALSE(contains(nodes[node].err(), " exited with 75\n"));
    const auto cause = testing::field_of(testing::failure_block(nodes[node].err()), "cause");
    CHECK(cause.starts_with(who));
    CHECK(cause.ends_with(" exited with 0 before the others"));
  }
}

TEST_CASE("the last calls of all nodes' ranks are written by the first") {
  const Folder folder;
  const std::string path = folder.path + "/flight.json";
  Stuck nodes(folder, 2, 2, "kill", {"--flight-file", path});
  for (std::size_t node = 0; node < 2; ++node) CHECK(nodes[node].wait().code == 137);
  std::ifstream file(path);
  const auto flight = json::parse(file);
  REQUIRE(flight["ranks"].size() == 4);
  CHECK(flight["ranks"][3]["end"] == "killed by SIGKILL");
  CHECK(flight["ranks"][3]["records"].size() == 2);
  CHECK(flight["divergence"]["absent"] == json::array({3}));
  ::unlink((path + ".1").c_str());
}

TEST_CASE("workers without the runtime: one ends, another node's go on") {
  const Folder folder;
  const std::string token = unique_token();
  Nodes nodes("2", {"sh", "-c", "test $RANK = 1 || exec tail -f /dev/null; : " + token},
              {"--nproc-per-node", "1", "--straggler-timeout", "300ms", "--shutdown-timeout", "1"},
              folder.environment());
  Job& a = nodes.add({"--node-rank", "0"});
  Job& b = nodes.add({"--node-rank", "1"});
  CHECK(a.wait().code == 80);
  CHECK(b.wait().code == 80);
  INFO(a.err() << b.err());
  CHECK(contains(a.err(), "rank 1 on "));
  CHECK(contains(a.err(), " ago, and rank 0 still runs: the job is ended (--straggler-timeout)"));
  CHECK(contains(b.err(), " ago, and rank 0 still runs"));
  CHECK(all_gone(token));
}
