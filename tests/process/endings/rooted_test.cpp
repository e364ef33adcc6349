// Ranks that name different roots, in calls from which each returns without hearing of the others:
// the job does not end with 0, and both calls are told, with their places.
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <regex>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using testing::is_full;
using Strings = std::vector<std::string>;

struct Layout {
  int ranks, nodes;
};

struct Run {
  std::string op, api, end;
  std::string pipe = {};
};

/// A job of so many ranks on so many nodes of this host.
class Rooted {
 public:
  Rooted(Layout layout, const Run& run) {
    Strings line{"--nproc-per-node", std::to_string(layout.ranks), "--shutdown-timeout", "1"};
    if (layout.nodes > 1) {
      line.insert(line.end(), {"--nnodes", std::to_string(layout.nodes), "--rdzv-endpoint",
                               "127.0.0.1:" + std::to_string(free_port())});
    }
    for (int node = 0; node < layout.nodes; ++node) {
      Strings all = line;
      all.insert(all.end(),
                 {"--node-id", "n" + std::to_string(node), DLAUNCH_BINARY_DIR "/tests/rooted_rank",
                  run.op, run.api, run.end, unique_token(), run.pipe});
      jobs_.push_back(std::make_unique<Job>(all));
    }
  }
  /// The code, which is the same on all nodes.
  int code() {
    int code = -1;
    for (const auto& job : jobs_) {
      const int own = job->wait().code;
      CHECK((job == jobs_.front() || own == code));
      code = own;
    }
    return code;
  }
  /// All that the nodes have printed.
  std::string text() {
    std::string all;
    for (const auto& job : jobs_) all += job->out() + job->err();
    return all;
  }
  const std::vector<std::unique_ptr<Job>>& nodes() const { return jobs_; }

 private:
  std::vector<std::unique_ptr<Job>> jobs_;
};

/// Two ranks' calls of one number, each with its root and its place: how often that is told.
int told_disagreements(const std::string& text, const Run& run) {
  const std::string made = "rank [0-9]+(?: and [0-9]+ others?)? (made|is in) " + run.op +
                           R"( #(\d+)( of '[^']*')? \([^)]*root (\d+)\) \[rooted_rank.cpp:\d+\])";
  const std::regex both(made + ", but " + made);
  int told = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), both), end; at != end; ++at) {
    CHECK((*at)[2] == (*at)[6]);
    CHECK((*at)[4] != (*at)[8]);
    ++told;
  }
  return told;
}

void check_told_at_the_end(Layout layout, const Run& run) {
  CAPTURE(layout.ranks);
  CAPTURE(layout.nodes);
  CAPTURE(run.op);
  CAPTURE(run.api);
  CAPTURE(run.end);
  Rooted job(layout, run);
  const int code = job.code();
  INFO(job.text());
  CHECK(code == 81);
  for (const auto& node : job.nodes()) {
    const std::string& said = node->err();
    CHECK(count(said, "dlaunch: the job ends: the ranks do not agree: rank ") == 1);
    CHECK(told_disagreements(said, run) >= 1);
  }
}

constexpr Layout two_ranks{2, 1}, four_ranks{4, 1}, two_nodes{1, 2}, two_by_two{2, 2};

}  // namespace

TEST_CASE("main returns at once") {
  for (const std::string op : {"broadcast", "scatter", "gather", "reduce"}) {
    for (const Layout layout : {two_ranks, two_nodes}) {
      check_told_at_the_end(layout, {op, "cpp", "leave"});
      if (is_full()) check_told_at_the_end(layout, {op, "c", "leave"});
    }
    if (!is_full()) continue;
    check_told_at_the_end(four_ranks, {op, "cpp", "leave"});
    check_told_at_the_end(two_by_two, {op, "cpp", "leave"});
  }
  check_told_at_the_end(four_ranks, {"broadcast", "cpp", "leave"});
  check_told_at_the_end(two_by_two, {"gather", "cpp", "leave"});
  check_told_at_the_end(two_ranks, {"broadcast", "c", "leave"});
  check_told_at_the_end(two_nodes, {"gather", "c", "leave"});
}

TEST_CASE("the communicator was destroyed before") {
  check_told_at_the_end(two_ranks, {"broadcast", "cpp", "child"});
  check_told_at_the_end(two_nodes, {"gather", "cpp", "child"});
}

TEST_CASE("the communicator was one of more than there are places for") {
  for (const Layout layout : {two_ranks, two_nodes}) {
    for (const std::string end : {"many_ended", "many_alive"}) {
      check_told_at_the_end(layout, {"broadcast", "cpp", end});
      if (is_full()) check_told_at_the_end(layout, {"gather", "cpp", end});
    }
  }
}

TEST_CASE("the ranks wait for something else before they end") {
  for (const Layout layout : {two_ranks, two_nodes}) {
    const Folder folder;
    const Run run{"broadcast", "cpp", "pause", folder.path + "/pipe"};
    REQUIRE(::mkfifo(run.pipe.c_str(), 0600) == 0);
    Rooted job(layout, run);
    for (const auto& node : job.nodes()) REQUIRE(node->saw("PAUSED", layout.ranks));
    // On one node it is told before they end.
    if (layout.nodes == 1) CHECK(job.nodes()[0]->saw("dlaunch: the ranks do not agree: rank "));
    const unique_fd pipe(::open(run.pipe.c_str(), O_WRONLY | O_CLOEXEC));
    REQUIRE(::write(pipe.get(), "go", 2) == 2);
    CHECK(job.code() == 81);
    CHECK(told_disagreements(job.text(), run) >= layout.nodes);
  }
}

TEST_CASE(
    "over connections no rank is further ahead than a window, and calls of one number are told") {
  for (const Run& run : {Run{"broadcast", "cpp", "loop"}, Run{"gather", "c", "loop"},
                         Run{"scatter", "cpp", "loop"}}) {
    CAPTURE(run.op);
    Rooted job(two_nodes, run);
    CHECK(job.code() == 1);
    const std::string text = job.text();
    INFO(text);
    const std::regex returned(R"(\] rooted_rank: returned (\d+) times)");
    int ranks = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), returned), end; at != end; ++at) {
      ++ranks;
      CHECK(std::stoi((*at)[1]) < 64);
    }
    CHECK(ranks == 2);
    CHECK(told_disagreements(text, run) >= 2);  // Both ranks.
  }
}

TEST_CASE("of three ranks the one that differs is named, at the end and by a window") {
  for (const Layout layout : {Layout{3, 1}, Layout{1, 3}}) {
    Rooted job(layout, {"broadcast", "cpp", "leave"});
    CHECK(job.code() == 81);
    for (const auto& node : job.nodes()) {
      INFO(node->err());
      // As it happens, and in the block at the end.
      CHECK(count(node->err(), "the ranks do not agree: rank 1 made broadcast #") == 2);
      CHECK(count(node->err(), ", but rank 0 and 1 other made broadcast #") == 2);
    }
  }
  Rooted job({1, 3}, {"broadcast", "cpp", "loop"});
  CHECK(job.code() == 1);
  for (const auto& node : job.nodes()) {
    INFO(node->err());
    const std::string cause = testing::field_of(testing::failure_block(node->err()), "cause");
    CHECK(cause.starts_with("rank 1 "));
    CHECK(cause.ends_with(" made another call than the others"));
  }
}

TEST_CASE("the records of the calls are gone") {
  for (const Layout layout : {two_ranks, two_nodes}) {
    Rooted job(layout, {"broadcast", "cpp", "forget"});
    CHECK(job.code() == 81);
    INFO(job.text());
    CHECK(count(job.nodes()[0]->err(),
                "dlaunch: the job ends: the ranks do not agree: rank 0 and rank 1 made different "
                "calls with a "
                "root before #2, of which no record is left") == 1);
  }
}

TEST_CASE("ranks that agree are not told anything, however they go on") {
  for (const Layout layout : {two_ranks, two_nodes, two_by_two}) {
    for (const std::string op : {"broadcast", "gather"}) {
      if (layout.ranks * layout.nodes == 4 && op == "gather" && !is_full()) continue;
      CAPTURE(op);
      Rooted job(layout, {op, "cpp", "agreed"});
      CHECK(job.code() == 0);
      INFO(job.text());
      CHECK(count(job.text(), "do not agree") == 0);
    }
  }
}

TEST_CASE(
    "a call that failed, of which the program has heard, is none of the launcher's business") {
  for (const Layout layout : {two_ranks, two_nodes}) {
    Rooted job(layout, {"reduce", "cpp", "mistake"});
    CHECK(job.code() == 0);
    INFO(job.text());
    CHECK(count(job.text(), "do not agree") == 0);
  }
}

}  // namespace dlaunch::process_test
