// The matrix of endings: one rank ends in its own way while the others go on, in every layout of
// ranks and agents, with the rendezvous in an agent and in dlaunchd. Every node has to end with the
// code of that ending, to blame that rank, and to leave no process behind. DLAUNCH_TEST_FULL=1 runs
// every cell twenty times, with another culprit each time; otherwise the widest layouts run once.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;

int runs() { return is_full() ? 20 : 1; }

struct Ending {
  std::string name;
  std::optional<int> code;  ///< Unset: any but 0, the same on all nodes.
  /// Ranks disagree: of two nobody knows who is right, and both are named.
  bool takes_majority = false;
};

const std::vector<Ending>& with_runtime() {
  static const std::vector<Ending> endings = {
      {"exit0", 75},   {"exit3", 3},  {"kill", 137},      {"stop", 1},       {"throw", 134},
      {"argument", 1}, {"absent", 1}, {"count", 1, true}, {"root", {}, true}};
  return endings;
}

const std::vector<Ending>& without_runtime() {
  static const std::vector<Ending> endings = {{"plain-exit0", 0},
                                              {"plain-exit3", 3},
                                              {"plain-kill", 137},
                                              {"plain-throw", 134},
                                              {"plain-stop", 80}};
  return endings;
}

struct Layout {
  int ranks;  ///< On each agent.
  int agents;
};

std::vector<Layout> layouts() {
  if (is_full()) return {{2, 1}, {4, 1}, {1, 2}, {2, 2}, {1, 4}, {2, 3}};
  return {{4, 1}, {2, 2}};
}

/// The first rank that the text names; -1 where it names none.
int first_rank(std::string_view text) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  for (auto at = text.find("rank"); at != std::string_view::npos; at = text.find("rank", at + 1)) {
    auto digits = at + 4;
    while (digits < text.size() && (text[digits] == ' ' || text[digits] == ':')) ++digits;
    if (digits > at + 4 && digits < text.size() && is_digit(text[digits])) {
      return std::atoi(std::string(text.substr(digits, 9)).c_str());
    }
  }
  return -1;
}

/// The block names this rank.
bool names(const std::string& err, int rank) {
  const std::string told = testing::failure_block(err);
  const std::string number = std::to_string(rank);
  for (const char* after : {" ", "\n", ","}) {
    if (told.find("rank " + number + after) != std::string::npos) return true;
  }
  return false;
}

/// The rank that a node blames; -1 where it blames none.
int blamed(const std::string& err) {
  return first_rank(testing::field_of(testing::failure_block(err), "cause"));
}

/// The agents of one job. Without a daemon, one of several hosts the rendezvous.
std::vector<std::unique_ptr<Job>> start(const Ending& ending, const Layout& layout,
                                        const Daemon* daemon, const Daemon::Strings& program) {
  static int job_number = 0;
  Daemon::Strings options = {"--nproc-per-node", std::to_string(layout.ranks), "--shutdown-timeout",
                             "1"};
  // Others fail by themselves, on a busy machine later than this.
  if (ending.name == "plain-stop") {
    options.insert(options.end(), {"--straggler-timeout", "300ms"});
  }
  if (layout.agents > 1 || daemon != nullptr) {
    options.insert(options.end(), {"--nnodes", std::to_string(layout.agents)});
  }
  Daemon::Strings line = options;
  line.insert(line.end(), program.begin(), program.end());
  if (daemon != nullptr) {
    line = daemon->line("endings-" + std::to_string(++job_number), options, program);
  } else if (layout.agents > 1) {
    line.insert(line.begin(), {"--rdzv-endpoint", "127.0.0.1:" + std::to_string(free_port())});
  }
  std::vector<std::unique_ptr<Job>> jobs;
  for (int i = 0; i < layout.agents; ++i) jobs.push_back(std::make_unique<Job>(line));
  return jobs;
}

void check(const Ending& ending, const Layout& layout, const Daemon* daemon, int culprit) {
  CAPTURE(ending.name);
  CAPTURE(layout.ranks);
  CAPTURE(layout.agents);
  CAPTURE(daemon != nullptr);
  CAPTURE(culprit);
  const int world = layout.ranks * layout.agents;
  const std::string token = unique_token();
  const auto jobs =
      start(ending, layout, daemon,
            {DLAUNCH_BINARY_DIR "/tests/ending_rank", ending.name, std::to_string(culprit), token});
  std::vector<int> codes, culprits;
  std::string said;
  for (const auto& job : jobs) {
    codes.push_back(job->wait().code);
    culprits.push_back(blamed(job->err()));
    said += "-- a node:\n" + job->err();
  }
  CAPTURE(said);
  CAPTURE(codes[0]);
  CHECK(std::count(codes.begin(), codes.end(), ending.code.value_or(codes[0])) == layout.agents);
  CHECK((ending.code == 0) == (codes[0] == 0));
  if (ending.name == "plain-stop") {
    // No rank failed: the sentence names the one that still ran.
    CHECK(said.find("rank " + std::to_string(culprit) + " still runs") != std::string::npos);
  } else {
    const bool is_open = ending.takes_majority && world == 2;
    const bool is_right = ending.code == 0 ? culprits[0] == -1
                          : is_open        ? names(jobs[0]->err(), culprit)
                                           : culprits[0] == culprit;
    CHECK_MESSAGE(is_right, "blamed: rank " << culprits[0]);
  }
  CHECK(std::count(culprits.begin(), culprits.end(), culprits[0]) == layout.agents);
  CHECK(all_gone(token));
}

void check_endings(const std::vector<Ending>& endings, const Daemon* daemon) {
  for (const auto& ending : endings) {
    for (const auto& layout : layouts()) {
      const int world = layout.ranks * layout.agents;
      // The last rank first: it is on another node than the one that hosts.
      for (int run = 1; run <= runs(); ++run)
        check(ending, layout, daemon, world - 1 - (run - 1) % world);
    }
  }
}

}  // namespace

TEST_CASE("endings with the runtime, hosted") { check_endings(with_runtime(), nullptr); }

TEST_CASE("endings without the runtime, hosted") { check_endings(without_runtime(), nullptr); }

TEST_CASE("endings with the runtime, under dlaunchd") {
  const Daemon daemon;
  check_endings(with_runtime(), &daemon);
}

TEST_CASE("endings without the runtime, under dlaunchd") {
  const Daemon daemon;
  check_endings(without_runtime(), &daemon);
}

}  // namespace dlaunch::process_test
