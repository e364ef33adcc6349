// Ranks that share processors learn it, whichever agents of the host have started them: their
// meshes then yield, where others spin.
#include "tests/process/nodes.hpp"
#include "tests/process/processors.hpp"
#include "tests/support/skipped.hpp"

#include <string>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

const std::string rank_program = DLAUNCH_BINARY_DIR "/tests/crowded_rank";

/// The ranks of one agent, on one processor.
std::string told_by_one_agent(const std::string& ranks) {
  const OnProcessor one(own_processors().front());
  Job job({"--standalone", "--nproc-per-node", ranks, "--no-python", rank_program});
  CHECK(job.wait().code == 0);
  INFO(job.err());
  return job.out();
}

/// The ranks of two agents, one of each, on these processors.
std::string told_by_two_agents(int first, int second, const std::string& shared_memory) {
  Nodes nodes("2", {rank_program},
              {"--nproc-per-node", "1", "--no-python", "--shared-memory", shared_memory});
  for (const int processor : {first, second}) {
    const OnProcessor only(processor);
    nodes.add();
  }
  std::string told;
  for (const std::size_t node : {0u, 1u}) {
    CHECK(nodes[node].wait().code == 0);
    INFO(nodes[node].err());
    told += nodes[node].out();
  }
  return told;
}

void check_both(const std::string& told, const std::string& what) {
  CHECK_MESSAGE(count(told, "rank 0 " + what + "\n") == 1, told);
  CHECK_MESSAGE(count(told, "rank 1 " + what + "\n") == 1, told);
}

}  // namespace

TEST_CASE("ranks of one agent that outnumber its processors yield, and a rank that has one spins") {
  check_both(told_by_one_agent("2"), "yields");
  CHECK(count(told_by_one_agent("1"), "rank 0 spins\n") == 1);
}

TEST_CASE(
    "ranks of several agents are counted together, whether they have memory in common or not") {
  const int only = own_processors().front();
  for (const std::string memory : {"host", "node"}) {
    CAPTURE(memory);
    check_both(told_by_two_agents(only, only, memory), "yields");
  }
}

TEST_CASE("agents that are pinned apart do not compete") {
  const auto processors = own_processors();
  if (processors.size() < 2) return testing::skipped("two processors are needed");
  for (const std::string memory : {"host", "node"}) {
    CAPTURE(memory);
    check_both(told_by_two_agents(processors[0], processors[1], memory), "spins");
  }
}

}  // namespace dlaunch::process_test
