// Ranks that leave as soon as a call has returned, while others are still in it: all end well,
// whatever the call, and however the ranks are spread over nodes. A fixed sample; all of it with
// DLAUNCH_TEST_FULL=1.
#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"

#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;
using Strings = std::vector<std::string>;
using Layout = std::vector<int>;  ///< Ranks of each agent.

const Strings even_calls = {"barrier", "broadcast", "reduce",         "all_reduce", "all_gather",
                            "gather",  "scatter",   "reduce_scatter", "all_to_all"};
const Strings uneven_calls = {"all_gather_v", "gather_v", "scatter_v", "reduce_scatter_v",
                              "all_to_all_v"};
const Strings other_calls = {"messages",
                             "message",
                             "tree broadcast",
                             "tree all_gather",
                             "tree all_reduce",
                             "all_gather_objects",
                             "gather_objects",
                             "scatter_objects",
                             "split",
                             "duplicate",
                             "in a duplicate",
                             "start_all_reduce",
                             "start_all_gather",
                             "start_batch",
                             "reducer",
                             "join"};

std::string text_of(const Layout& layout) {
  std::string text;
  for (const int ranks : layout) text += (text.empty() ? "" : "+") + std::to_string(ranks);
  return text;
}

Strings in_cpp(const char* transport, const std::string& call, std::size_t elements) {
  return {DLAUNCH_BINARY_DIR "/tests/leave_rank", transport, call, std::to_string(elements)};
}
Strings in_c(const std::string& call, std::size_t elements) {
  return {DLAUNCH_BINARY_DIR "/tests/leave_rank_c", call, std::to_string(elements)};
}

/// Agents of one job on this host.
void check(const Layout& layout, const Strings& program) {
  CAPTURE(text_of(layout));
  CAPTURE(program);
  const std::string endpoint = "127.0.0.1:" + std::to_string(free_port());
  std::vector<std::unique_ptr<Job>> jobs;
  for (std::size_t node = 0; node < layout.size(); ++node) {
    Strings line{"--nproc-per-node", std::to_string(layout[node])};
    if (layout.size() == 1) {
      line.push_back("--standalone");
    } else {
      line.insert(line.end(), {"--nnodes", std::to_string(layout.size()), "--rdzv-endpoint",
                               endpoint, "--node-id", "node" + std::to_string(node)});
    }
    line.push_back("--no-python");
    line.insert(line.end(), program.begin(), program.end());
    jobs.push_back(std::make_unique<Job>(std::move(line)));
  }
  for (const auto& job : jobs) {
    const auto end = job->wait();
    CHECK_MESSAGE(end.code == 0, job->err());
  }
}

}  // namespace

TEST_CASE("ranks of unequal nodes leave at once") {
  // A ring of large parts, in which the next rank is done first.
  for (int run = 0; run < (is_full() ? 20 : 3); ++run) {
    check({3, 2}, in_c("all_gather", 2u << 20));
    check({4, 3}, in_c("broadcast", 8u << 20));
  }
  check({6, 1}, in_cpp("shared", "all_gather_v", 1u << 20));
}

TEST_CASE("ranks leave after each call at once") {
  const std::vector<Layout> layouts = {{3, 2}, {6, 1}, {4, 3}, {2, 2}, {1, 1}, {1, 2}, {4}};
  Strings calls = even_calls;
  calls.insert(calls.end(), uneven_calls.begin(), uneven_calls.end());
  const std::size_t c_calls = calls.size();
  calls.insert(calls.end(), other_calls.begin(), other_calls.end());
  if (!is_full()) {
    // Each call once; layouts, sizes and languages in turn.
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const std::size_t elements = i % 4 == 0 ? 3 : 300'000;
      check(layouts[i % layouts.size()],
            i < c_calls && i % 2 == 1 ? in_c(calls[i], elements)
                                      : in_cpp(i % 3 == 0 ? "tcp" : "shared", calls[i], elements));
    }
    return;
  }
  for (const Layout& layout : layouts) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      for (const std::size_t elements : {1u, 1000u, 300'000u, 2u << 20}) {
        for (const char* transport : {"shared", "tcp"}) {
          check(layout, in_cpp(transport, calls[i], elements));
        }
        if (i < c_calls) check(layout, in_c(calls[i], elements));
      }
    }
  }
}

TEST_CASE("a rank leaves when it has sent a message that is not received yet") {
  for (const Layout& layout : {Layout{2}, Layout{1, 1}, Layout{2, 1}}) {
    for (const char* transport : {"shared", "tcp"}) {
      for (const std::size_t elements : {1u, 200'000u, 5'000'000u}) {
        if (!is_full() && layout.size() == 2 && elements == 1) continue;
        check(layout, in_cpp(transport, "message", elements));
      }
    }
  }
}

}  // namespace dlaunch::process_test
