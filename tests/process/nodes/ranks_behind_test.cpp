// A dlaunchd tells its operator which rank of a job stays behind, and what the others wait in.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/temporary_folder.hpp"

#include <chrono>
#include <csignal>
#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using namespace dlaunch::process_test;
using namespace std::chrono_literals;
using nlohmann::json;
using testing::contains;

namespace {

class Watched {
 public:
  /// As the operator's tool has it.
  std::string job(const Strings& options = {}) {
    const std::string& said = daemon.job().err();
    const auto at = said.find("http=") + 5;
    Strings words = {"ctl", "job", "j", "--endpoint", said.substr(at, said.find(' ', at) - at)};
    words.insert(words.end(), options.begin(), options.end());
    Job asking(std::move(words), Job::Environment{});
    asking.wait();
    return asking.out() + asking.err();
  }
  /// Until it says so; fails the test after a minute.
  std::string await(const std::string& words) {
    for (const auto end = Clock::now() + 1min; Clock::now() < end;) {
      std::string text = job();
      if (contains(text, words)) return text;
    }
    FAIL_CHECK(job(), " never had ", words);
    return "";
  }
  Strings line(const std::string& node, const Strings& program) const {
    return daemon.line(
        "j",
        {"--nnodes", "2", "--nproc-per-node", "2", "--rdzv-role", "join", "--shutdown-timeout", "1",
         "--node-rank", node == "a" ? "0" : "1", "--node-id", node},
        program);
  }

  Daemon daemon{{"--http", "127.0.0.1:0"}};
};

}  // namespace

TEST_CASE("the rank that stays behind is named, with what it does, also by the next daemon") {
  Watched watched;
  std::string mode, does;
  SUBCASE("computes") { mode = "compute", does = ": in no call for "; }
  SUBCASE("stopped") { mode = "stop", does = ": stopped by a signal, last seen in all_reduce #2 "; }
  const Strings program = {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), "600"};
  Job a(watched.line("a", program)), b(watched.line("b", program));
  const std::string name = "\nrank 3 on node b is 1 call behind, for ";
  for (const bool again : {false, true}) {
    CAPTURE(again);
    // A daemon that was started again hears of one node first.
    const std::string text = watched.await("; 3 ranks have come to all_reduce #3 [stuck_rank.cpp:");
    CHECK(contains(text, name));
    CHECK(contains(text, does));
    CHECK(count(text, " behind, for ") == 1);
    const auto told = json::parse(watched.job({"--json"}));
    CHECK(told["ranks_behind"] == 1);
    for (const json& node : told["nodes"]) {
      for (const json& ranks : node["calls"]) {
        CHECK((ranks["behind"] == true) == (ranks["first_rank"] == 3));
        if (ranks["first_rank"] != 3) CHECK(ranks["state"] == "waits");
      }
    }
    if (again) break;
    watched.daemon.kill();
    watched.daemon.start();
  }
  a.send(SIGTERM);
  a.wait();
  b.wait();
}

TEST_CASE("ranks that go on together are seen in their calls, and none is behind") {
  Watched watched;
  const testing::TemporaryFolder folder;
  const std::string end = folder.path() / "end";
  const Strings program = {DLAUNCH_BINARY_DIR "/tests/steady", end, "20"};
  Job a(watched.line("a", program)), b(watched.line("b", program));
  REQUIRE(a.saw("rank 0 tick 100\n"));
  json told;
  for (const auto until = Clock::now() + 1min; Clock::now() < until;) {
    told = json::parse(watched.job({"--json"}));
    if (told["nodes"][0]["calls"].is_array() && told["nodes"][1]["calls"].is_array()) break;
  }
  CHECK(contains(told["foremost_call"].get<std::string>(), "all_reduce #"));
  CHECK(told["ranks_behind"] == 0);
  std::ofstream{end};
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
}
