// The examples, as their first lines say they are run, without a launcher.
#include "tests/process/by_hand/by_hand_process.hpp"
#include "tests/support/free_port.hpp"

#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>

namespace {

const std::string examples = DLAUNCH_BINARY_DIR "/bin/examples/";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string run(const std::vector<std::string>& command) {
  Process process(command, {});
  CHECK(process.wait() == 0);
  return process.output();
}

}  // namespace

TEST_CASE("barrier starts its own processes; no result comes before the last message") {
  for (int i = 0; i < 10; ++i) {
    const auto lines = lines_of(run({examples + "barrier", "--nproc_per_node", "4"}));
    CHECK(lines.size() == 4 * (15 + 2) + 1);
    std::ptrdiff_t last_message = 0, first_result = std::ssize(lines);
    int messages = 0, results = 0;
    for (std::ptrdiff_t at = 0; at < std::ssize(lines); ++at) {
      const std::string& line = lines[static_cast<std::size_t>(at)];
      if (line == "I HAVE BARRIER DUDE! WAITING FOR ALL PROCESSES TO SYNCHRONIZE...") {
        ++messages;
        last_message = at;
      } else if (line == "Results: [[1, 2, 3]]") {
        ++results;
        first_result = std::min(first_result, at);
      }
    }
    CHECK(messages == 4);
    CHECK(results == 4);
    CHECK(last_message < first_result);
    CHECK(std::ranges::count(lines, "Sum of 1 to 4 over 4 ranks: 10") == 1);
  }
}

TEST_CASE("barrier without one, and alone") {
  const std::string without = run({examples + "barrier", "--no-barrier", "--nproc_per_node", "2"});
  CHECK(without.find("I HAVE NO BARRIER DUDE!") != std::string::npos);
  CHECK(without.find("I HAVE BARRIER") == std::string::npos);
  const std::string alone = run({examples + "barrier"});
  CHECK(alone.find("\"world_size\": 1,") != std::string::npos);
  Process wrong({examples + "barrier", "--barriers"}, {});
  CHECK(wrong.wait() == 64);
  CHECK(wrong.output().find("usage") != std::string::npos);
}

TEST_CASE("ranks says where it stands") {
  CHECK(run({examples + "ranks"}).starts_with("rank 0 of 1: local rank 0 of 1, node 0 of 1"));
}

TEST_CASE("ping_pong plays between two terminals") {
  std::map<std::string, std::string> variables{
      {"MASTER_ADDR", "127.0.0.1"},
      {"MASTER_PORT", std::to_string(dlaunch::testing::free_port())},
      {"WORLD_SIZE", "2"},
      {"RANK", "0"}};
  Process zero({examples + "ping_pong"}, variables);
  variables["RANK"] = "1";
  Process one({examples + "ping_pong"}, variables);
  CHECK(zero.wait() == 0);
  CHECK(one.wait() == 0);
  CHECK(zero.output().starts_with("rank 0: the ball came back 1000 times"));
  CHECK(one.output().starts_with("rank 1: the ball came back 1000 times"));
}
