// A rank's forked child has copies of all that the rank shares with others: nothing of them may act
// when it ends.
#include "tests/process/nodes.hpp"

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

const Strings program{"--no-python", DLAUNCH_BINARY_DIR "/tests/forking_rank"};

Strings running(const char* mode, Strings options) {
  options.insert(options.end(), program.begin(), program.end());
  options.emplace_back(mode);
  return options;
}

}  // namespace

TEST_CASE("a child that is forked and ends leaves its rank's memory and connections alone") {
  for (const char* mode : {"plain", "started"}) {
    CAPTURE(mode);
    for (const int ranks : {1, 3}) {
      CAPTURE(ranks);
      Job job(running(mode, {"--standalone", "--nproc-per-node", std::to_string(ranks)}));
      CHECK(job.wait().code == 0);
      CHECK_MESSAGE(count(job.out(), ": all right") == ranks, job.err());
    }
    Nodes nodes("2", running(mode, {}), {"--nproc-per-node", "2"});
    nodes.add({"--node-id", "a"});
    nodes.add({"--node-id", "b"});
    for (const std::size_t node : {0u, 1u}) {
      CHECK(nodes[node].wait().code == 0);
      CHECK_MESSAGE(count(nodes[node].out(), ": all right") == 2, nodes[node].err());
    }
  }
}

}  // namespace dlaunch::process_test
