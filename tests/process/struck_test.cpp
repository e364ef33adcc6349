// A rank is killed, stopped, leaves or throws at each step of each algorithm in turn: all others
// return with an error that names it, and no process is left. A sample of it; with
// DLAUNCH_TEST_FULL=1 all, and how many that was.
#include "runtime/base/socket.hpp"
#include "tests/process/job.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

bool full() { return std::getenv("DLAUNCH_TEST_FULL") != nullptr; }
constexpr int ranks = 3;
constexpr int no_step = 1'000'000;

struct Case {
  std::string transport, call;
  int elements;
  int victim;
  std::string strike;
};

/// What the launcher's story of it is.
int expected_exit(const std::string& strike) {
  if (strike == "kill") return 137;
  return 3;  // The victim's own, or that of the first that failed for its sake.
}

Errc expected_error(const std::string& strike) {
  if (strike == "stop") return Errc::timeout;
  if (strike == "throw") return Errc::internal;
  return Errc::peer_lost;
}

/// A port that was free a moment ago.
std::string free_endpoint() {
  const auto port = free_port();
  return "127.0.0.1:" + std::to_string(port);
}

/// The ranks of one node, or, by nodes, two of one and one of another.
class Struck {
 public:
  Struck(const Case& c, int step) : token_(unique_token()) {
    const std::vector<std::string> program = {DLAUNCH_BINARY_DIR "/tests/struck",
                                              token_,
                                              c.transport,
                                              c.call,
                                              std::to_string(c.elements),
                                              std::to_string(c.victim),
                                              c.strike,
                                              std::to_string(step)};
    const auto start = [&](std::vector<std::string> line, int ranks_there) {
      line.insert(line.end(),
                  {"--nproc-per-node", std::to_string(ranks_there), "--shutdown-timeout", "1"});
      line.insert(line.end(), program.begin(), program.end());
      jobs_.push_back(std::make_unique<Job>(std::move(line)));
    };
    if (c.transport == "nodes") {
      const std::string endpoint = free_endpoint();
      for (const char* node : {"a", "b"}) {
        start({"--nnodes", "2", "--rdzv-endpoint", endpoint, "--node-id", node},
              node[0] == 'a' ? ranks - 1 : 1);
      }
    } else {
      start({"--standalone"}, ranks);
    }
    for (const auto& job : jobs_) {
      code_ = job->wait().shell_code();
      out_ += job->out();
      err_ += job->err();
    }
  }

  int code() const { return code_; }
  std::string said() const { return out_ + err_; }
  bool is_all_gone() const { return all_gone(token_); }
  /// The line of a rank that was told of a failure; empty if there is none.
  std::string told(int rank) const {
    const std::string begin = "] rank " + std::to_string(rank) + " told ";
    const auto at = out_.find(begin);
    if (at == std::string::npos) return {};
    return out_.substr(at + begin.size(), out_.find('\n', at) - at - begin.size());
  }
  /// Of the victim; -1 if it did not get there.
  int steps() const {
    const auto at = out_.find(" steps\n");
    if (at == std::string::npos) return -1;
    return std::atoi(out_.c_str() + out_.rfind(' ', at - 1));
  }

 private:
  std::string token_;
  std::vector<std::unique_ptr<Job>> jobs_;
  std::string out_, err_;
  int code_ = 0;  ///< The same on all nodes.
};

int steps_of(Case c) {
  c.strike = "count";
  const Struck run(c, no_step);
  REQUIRE_MESSAGE(run.code() == 0, run.said());
  REQUIRE_MESSAGE(run.steps() > 0, run.said());
  return run.steps();
}

void check(const Case& c, int step) {
  CAPTURE(c.transport);
  CAPTURE(c.call);
  CAPTURE(c.elements);
  CAPTURE(c.victim);
  CAPTURE(c.strike);
  CAPTURE(step);
  const Struck run(c, step);
  INFO(run.said());
  CHECK(run.code() == expected_exit(c.strike));
  CHECK(run.is_all_gone());
  const std::string victim = "rank " + std::to_string(c.victim);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == c.victim) continue;
    CAPTURE(rank);
    const std::string told = run.told(rank);
    CHECK(std::atoi(told.c_str()) == static_cast<int>(expected_error(c.strike)));
    CHECK(told.find(victim) != std::string::npos);
  }
}

/// At most so many of a call's steps, the first and the last among them.
int check_steps(const Case& c, int at_most) {
  const int steps = steps_of(c);
  const int checked = std::min(steps, at_most);
  for (int i = 0; i < checked; ++i) {
    check(c, checked == 1 ? 0 : i * (steps - 1) / (checked - 1));
  }
  return checked;
}

const std::vector<std::string> transports = {"shared", "tcp", "nodes"};
const std::vector<std::string> strikes = {"kill", "leave", "throw", "stop"};

/// Each strike, each call, each size, each step.
void check_all(const std::string& transport) {
  int count = 0;
  for (const char* call : {"barrier", "broadcast", "reduce", "all_reduce", "all_gather", "gather",
                           "scatter", "reduce_scatter", "all_to_all", "messages"}) {
    for (const int elements : {1, 1000, 300'000}) {
      if (std::string_view(call) == "barrier" && elements > 1) continue;
      for (const int victim : {0, 2}) {
        for (const auto& strike : strikes) {
          // A stopped rank is waited for until it is killed, a second each time.
          count += check_steps({transport, call, elements, victim, strike},
                               strike == "stop" ? 3 : no_step);
        }
      }
    }
  }
  std::printf("%d strikes, each named on all other ranks\n", count);
}

}  // namespace

TEST_CASE("a rank is killed at each step of an all_reduce") {
  for (const auto& transport : transports) {
    check_steps({transport, "all_reduce", 300'000, 1, "kill"}, 40);
  }
}

TEST_CASE("a rank is killed, leaves, throws or is stopped on its way through each call") {
  const std::vector<std::string> calls = {"barrier",  "broadcast",     "reduce",     "all_gather",
                                          "gather",   "scatter",       "all_reduce", "all_to_all",
                                          "messages", "reduce_scatter"};
  std::size_t turn = 0;
  for (const auto& call : calls) {
    const Case c{transports[turn % 3], call, 1000, 1, strikes[turn / 2 % strikes.size()]};
    check(c, 0);
    ++turn;
  }
}

TEST_CASE("every strike over shared memory" * doctest::skip(!full())) { check_all("shared"); }
TEST_CASE("every strike over TCP" * doctest::skip(!full())) { check_all("tcp"); }
TEST_CASE("every strike over two nodes" * doctest::skip(!full())) { check_all("nodes"); }

}  // namespace dlaunch::process_test
