// A rank is killed, stopped, leaves or throws at each step of each algorithm in turn: all others
// return with an error that names it, and no process, file or memory is left. A fixed part of it,
// the same on every day; with DLAUNCH_TEST_FULL=1 all, and how many that was.
#include "runtime/base/os/socket.hpp"
#include "tests/process/job.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/temporary_folder.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;

constexpr int ranks = 3;
constexpr int no_step = 1'000'000;

struct Case {
  std::string transport, call;
  int elements;
  int victim;
  std::string strike;
};

/// The launcher's exit code for it.
int expected_exit(const std::string& strike) {
  if (strike == "kill") return 137;
  return 3;  // The victim's own, or that of the first that failed for its sake.
}

/// If the victim throws in a communicator that not all wait in, the others lose it as it ends.
bool is_expected(const Case& c, int error) {
  if (c.strike == "stop") return error == static_cast<int>(Errc::timeout);
  const bool lost = error == static_cast<int>(Errc::peer_lost);
  if (c.strike != "throw") return lost;
  return error == static_cast<int>(Errc::internal) || (lost && c.call == "in a duplicate");
}

/// The job's files in the memory file system: its own memory has no name there.
std::vector<std::string> shared_files() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (name.find("dlaunch") != std::string::npos) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
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
      const std::string own = folder_.path().string();
      jobs_.push_back(std::make_unique<Job>(
          std::move(line), Job::Environment{{"XDG_RUNTIME_DIR", own}, {"TMPDIR", own}}));
    };
    if (c.transport == "nodes") {
      const std::string endpoint = free_endpoint();
      for (const char* node : {"a", "b"}) {
        start({"--nnodes", "2", "--rdzv-endpoint", endpoint, "--node-id", node, "--shared-memory",
               "node"},
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
  /// Files and sockets; the folder for status sockets stays.
  std::vector<std::string> left_behind() const {
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.path() != folder_.path() / "dlaunch") left.push_back(entry.path().string());
    }
    for (const auto& name : shared_files()) {
      if (!std::binary_search(shared_before_.begin(), shared_before_.end(), name)) {
        left.push_back("/dev/shm/" + name);
      }
    }
    return left;
  }
  /// The line of a rank that was told of a failure; empty if there is none.
  std::string told(int rank) const {
    const std::string begin = "] rank " + std::to_string(rank) + " told ";
    const auto at = out_.find(begin);
    if (at == std::string::npos) return {};
    return out_.substr(at + begin.size(), out_.find('\n', at) - at - begin.size());
  }
  /// The victim's steps; -1 if it did not get there.
  int steps() const {
    const auto at = out_.find(" steps\n");
    if (at == std::string::npos) return -1;
    return std::atoi(out_.c_str() + out_.rfind(' ', at - 1));
  }

 private:
  std::string token_;
  testing::TemporaryFolder folder_;
  std::vector<std::string> shared_before_ = shared_files();
  std::vector<std::unique_ptr<Job>> jobs_;
  std::string out_, err_;
  int code_ = 0;  ///< The same on all nodes.
};

int steps_of(Case c) {
  c.strike = "count";
  const Struck run(c, no_step);
  REQUIRE_MESSAGE(run.code() == 0, run.said());
  REQUIRE_MESSAGE(run.steps() >= 0, run.said());
  CHECK(run.left_behind() == std::vector<std::string>{});
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
  CHECK(run.left_behind() == std::vector<std::string>{});
  const std::string victim = "rank " + std::to_string(c.victim);
  for (int rank = 0; rank < ranks; ++rank) {
    if (rank == c.victim) continue;
    CAPTURE(rank);
    const std::string told = run.told(rank);
    CHECK_MESSAGE(is_expected(c, std::atoi(told.c_str())), told);
    CHECK(told.find(victim) != std::string::npos);
  }
}

/// At most so many of a call's steps, the first and the last among them.
int check_steps(const Case& c, int at_most) {
  const int steps = steps_of(c);
  if (steps == 0) std::printf("%s: no step on rank %d\n", c.call.c_str(), c.victim);
  const int checked = std::min(steps, at_most);
  for (int i = 0; i < checked; ++i) {
    check(c, checked == 1 ? 0 : i * (steps - 1) / (checked - 1));
  }
  return checked;
}

const std::vector<std::string> transports = {"shared", "tcp", "nodes"};
const std::vector<std::string> strikes = {"kill", "leave", "throw", "stop"};

const std::vector<std::string> even_calls = {"barrier",    "broadcast", "reduce",  "all_reduce",
                                             "all_gather", "gather",    "scatter", "reduce_scatter",
                                             "all_to_all", "messages"};
const std::vector<std::string> uneven_calls = {"all_gather_v", "gather_v", "scatter_v",
                                               "reduce_scatter_v", "all_to_all_v"};
const std::vector<std::string> tree_calls = {"tree broadcast",  "tree all_gather",
                                             "tree all_reduce", "all_gather_objects",
                                             "gather_objects",  "scatter_objects"};
const std::vector<std::string> group_calls = {"split", "group", "duplicate", "in a duplicate"};
const std::vector<std::string> started_calls = {"start_all_reduce", "start_all_gather",
                                                "start_batch", "reducer", "join"};

bool has_elements(const std::string& call) {
  return call != "barrier" && call != "split" && call != "group" && call != "duplicate";
}

/// Each strike, each of these calls, each size, each step.
void check_calls(const std::string& transport, const std::vector<std::string>& calls) {
  int count = 0;
  for (const auto& call : calls) {
    for (const int elements : {1, 1000, 300'000}) {
      if (!has_elements(call) && elements > 1) continue;
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

void check_kinds(const std::string& transport) {
  SUBCASE("even") { check_calls(transport, even_calls); }
  SUBCASE("v-forms") { check_calls(transport, uneven_calls); }
  SUBCASE("trees") { check_calls(transport, tree_calls); }
  SUBCASE("communicators") { check_calls(transport, group_calls); }
  SUBCASE("started") { check_calls(transport, started_calls); }
}

}  // namespace

TEST_CASE("a rank is killed at each step of an all_reduce") {
  for (const auto& transport : transports) {
    check_steps({transport, "all_reduce", 300'000, 1, "kill"}, 40);
  }
}

TEST_CASE("a rank is killed, leaves, throws or is stopped on its way through each call") {
  std::size_t turn = 0;
  for (const auto& call : even_calls) {
    const Case c{transports[turn % 3], call, 1000, 1, strikes[turn / 2 % strikes.size()]};
    check(c, 0);
    ++turn;
  }
}

TEST_CASE("every second one of all other calls is struck") {
  std::vector<std::string> calls;
  for (const auto* some : {&uneven_calls, &tree_calls, &group_calls, &started_calls}) {
    calls.insert(calls.end(), some->begin(), some->end());
  }
  std::size_t turn = 0;
  for (std::size_t i = 0; i < calls.size(); i += 2) {
    const Case c{transports[turn % transports.size()], calls[i], 1000, 1,
                 strikes[turn % strikes.size()]};
    const int steps = steps_of(c);
    if (steps > 0) check(c, static_cast<int>(turn % static_cast<std::size_t>(steps)));
    ++turn;
  }
}

// Minutes to half an hour for each kind: -tc='every strike over TCP' -sc=trees chooses one.
TEST_CASE("every strike over shared memory" * doctest::skip(!is_full())) { check_kinds("shared"); }
TEST_CASE("every strike over TCP" * doctest::skip(!is_full())) { check_kinds("tcp"); }
TEST_CASE("every strike over two nodes" * doctest::skip(!is_full())) { check_kinds("nodes"); }

}  // namespace dlaunch::process_test
