// The grid of unit/collectives/grid_test.cpp once more, with ranks that are processes: started by a
// real launcher, over the memory of one node, over connections, and by nodes.
#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;

using Strings = std::vector<std::string>;

const std::string program = DLAUNCH_BINARY_DIR "/tests/grid_rank";

/// Agents of one job on this host, each with so many ranks.
std::vector<std::unique_ptr<Job>> start(const std::vector<int>& ranks_of_nodes) {
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  std::vector<std::unique_ptr<Job>> jobs;
  for (std::size_t node = 0; node < ranks_of_nodes.size(); ++node) {
    Strings line{"--nproc-per-node", std::to_string(ranks_of_nodes[node])};
    if (ranks_of_nodes.size() == 1) {
      line.push_back("--standalone");
    } else {
      line.insert(line.end(),
                  {"--nnodes", std::to_string(ranks_of_nodes.size()), "--rdzv-endpoint", endpoint,
                   "--node-id", "node" + std::to_string(node), "--shared-memory", "node"});
    }
    line.insert(line.end(), {"--no-python", program});
    jobs.push_back(std::make_unique<Job>(std::move(line)));
  }
  return jobs;
}

void check_grid(const std::vector<int>& ranks_of_nodes) {
  const auto jobs = start(ranks_of_nodes);
  int right = 0, ranks = 0;
  std::string text;
  for (const auto& job : jobs) {
    CHECK(job->wait().code == 0);
    right += count(job->out(), ": all right");
    text += job->out() + job->err();
  }
  for (const int here : ranks_of_nodes) ranks += here;
  CHECK_MESSAGE(right == ranks, text);
}

}  // namespace

TEST_CASE("every call, with processes that share memory") {
  const auto sizes = is_full() ? std::vector{1, 2, 3, 4, 5, 6, 7, 8, 9} : std::vector{1, 2, 3, 5};
  for (const int size : sizes) {
    CAPTURE(size);
    check_grid({size});
  }
}

TEST_CASE("every call, with processes that have connections alone") {
  const std::size_t most = is_full() ? 9 : 3;
  for (std::size_t size = 2; size <= most; ++size) {
    CAPTURE(size);
    check_grid(std::vector<int>(size, 1));
  }
}

TEST_CASE("every call, with processes on several nodes that share memory on each") {
  const auto layouts = is_full() ? std::vector<std::vector<int>>{{2, 2},    {2, 1},    {1, 3},
                                                                 {3, 3, 3}, {2, 2, 2}, {4, 3, 1}}
                                 : std::vector<std::vector<int>>{{2, 2}, {2, 1}};
  for (const auto& layout : layouts) {
    CAPTURE(layout.size());
    check_grid(layout);
  }
}

}  // namespace dlaunch::process_test
