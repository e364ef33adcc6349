// The examples under the launcher, as its users run them.
#include "tests/process/by_hand/by_hand_process.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include <doctest/doctest.h>

namespace {

const std::string launcher = DLAUNCH_BINARY_DIR "/bin/dlaunch";
const std::string examples = DLAUNCH_BINARY_DIR "/bin/examples/";

/// The lines that come out of four ranks of an example.
std::vector<std::string> launch(const std::vector<std::string>& program) {
  std::vector<std::string> command{launcher, "--standalone", "--nproc_per_node", "4"};
  command.insert(command.end(), program.begin(), program.end());
  Process process(command, {{"PATH", "/usr/bin:/bin"}});
  const int code = process.wait();
  CAPTURE(process.output());
  CHECK(code == 0);
  std::vector<std::string> lines;
  std::istringstream in(process.output());
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The places of the lines that end in this text.
std::vector<std::size_t> places_of(const std::vector<std::string>& lines, const std::string& text) {
  std::vector<std::size_t> places;
  for (std::size_t at = 0; at < lines.size(); ++at) {
    if (lines[at].ends_with(text)) places.push_back(at);
  }
  return places;
}

}  // namespace

TEST_CASE("with the barrier no result comes before the last message, in 50 of 50 runs") {
  for (int run = 0; run < 50; ++run) {
    const auto lines = launch({examples + "barrier"});
    const auto messages =
        places_of(lines, "] I HAVE BARRIER DUDE! WAITING FOR ALL PROCESSES TO SYNCHRONIZE...");
    const auto results = places_of(lines, "] Results: [[1, 2, 3]]");
    REQUIRE(messages.size() == 4);
    REQUIRE(results.size() == 4);
    CHECK(messages.back() < results.front());
    CHECK(places_of(lines, "[0] Sum of 1 to 4 over 4 ranks: 10").size() == 1);
    // Every line is whole and says whose it is.
    CHECK(lines.size() == 4 * (15 + 2) + 1);
    CHECK(std::ranges::all_of(lines, [](const std::string& line) {
      return line.size() > 4 && line[0] == '[' && line[1] >= '0' && line[1] <= '3' &&
             line.substr(2, 2) == "] ";
    }));
  }
}

TEST_CASE("the information of four processes has the thirteen fields") {
  const auto lines = launch({examples + "barrier", "--no-barrier"});
  CHECK(places_of(lines, "I HAVE NO BARRIER DUDE!").size() == 4);
  for (const char* field : {"\"nnodes\": 1,", "\"nproc_per_node\": 4,", "\"node_rank\": 0,",
                            "\"world_size\": 4,", "\"backend\": \"dlaunch\",",
                            "\"init_method\": \"dlaunch://\",", "\"local_world_size\": 4,"}) {
    CAPTURE(field);
    CHECK(places_of(lines, field).size() == 4);
  }
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(places_of(lines, "\"global_rank\": " + std::to_string(rank) + ",").size() == 1);
    CHECK(places_of(lines, "\"local_rank\": " + std::to_string(rank) + ",").size() == 1);
  }
}

TEST_CASE("each of four ranks knows its place, and rank 0 is first") {
  const auto lines = launch({examples + "ranks"});
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].find("rank 0 of 4") != std::string::npos);
  std::set<std::string> places;
  for (const std::string& line : lines) places.insert(line.substr(0, line.find(", node")));
  CHECK(places == std::set<std::string>{
                      "[0] rank 0 of 4: local rank 0 of 4", "[1] rank 1 of 4: local rank 1 of 4",
                      "[2] rank 2 of 4: local rank 2 of 4", "[3] rank 3 of 4: local rank 3 of 4"});
}

TEST_CASE("with --virtual-local-rank LOCAL_RANK is 0, and World knows better") {
  const std::string say = "echo LOCAL_RANK $LOCAL_RANK; exec " + examples + "ranks";
  Process process(
      {launcher, "--standalone", "--nproc_per_node", "3", "--virtual-local-rank", "sh", "-c", say},
      {{"PATH", "/usr/bin:/bin"}});
  CHECK(process.wait() == 0);
  const std::string output = process.output();
  CAPTURE(output);
  for (const std::string rank : {"0", "1", "2"}) {
    CHECK(output.find("[" + rank + "] LOCAL_RANK 0\n") != std::string::npos);
    CHECK(output.find("[" + rank + "] rank " + rank + " of 3: local rank " + rank + " of 3,") !=
          std::string::npos);
  }
}

TEST_CASE("the program of the README, and its twin in C") {
  for (const std::string program : {"all_reduce", "c_all_reduce"}) {
    CHECK(launch({examples + program}) == std::vector<std::string>{"[0] 4 ranks, mean 2.5"});
  }
}

TEST_CASE("structured values over four ranks: the source wins, a new axis over the ranks, folds") {
  const auto lines = launch({examples + "fabric"});
  REQUIRE(lines.size() == 12);
  CHECK(lines[0] == "[0] rank 0 of 4 prepares");
  for (const int other : {1, 2, 3}) {
    const std::string rank = std::to_string(other);
    CHECK(places_of(lines, "[" + rank + "] rank " + rank + " of 4 finds all prepared").size() == 1);
  }
  const std::vector<std::string> table(lines.begin() + 4, lines.end());
  CHECK(table ==
        std::vector<std::string>{
            "[0] broadcast_object(tree, 0)        {step: 7, name: \"first\", x: [1, 2, 3] "
            "of shape [3]}",
            "[0] all_gather_stacked([10 r])       [0, 10, 20, 30] of shape [4, 1]",
            "[0] all_gather_stacked(r)            [0, 1, 2, 3] of shape [4, 1]",
            "[0] all_gather_stacked({pair, rank}) {pair: ([0, 0, 1, -1, 2, -2, 3, -3] of "
            "shape [4, 2], (\"text\", \"text\", \"text\", \"text\")), rank: [0, 1, 2, 3] "
            "of shape [4, 1]}",
            "[0] all_reduce_object(tree)          {loss: 10, gradient: [6, 60] of shape [2]}",
            "[0] all_reduce_object(tree, mean)    {loss: 2.5, gradient: [1.5, 15] of shape "
            "[2]}",
            "[0] all_reduce_object(tree, max)     {loss: 4, gradient: [3, 30] of shape [2]}",
            "[0] all_reduce_object(integer, mean) an error: cast first, or ask for "
            "truncation"});
}

TEST_CASE("a world of one has the same rules") {
  Process process({examples + "fabric"}, {{"PATH", "/usr/bin:/bin"}});
  CHECK(process.wait() == 0);
  CHECK(process.output().find("all_gather_stacked([10 r])       [0] of shape [1, 1]\n") !=
        std::string::npos);
}

TEST_CASE("every collective of four ranks gives what it must, on all of them") {
  const auto lines = launch({examples + "collectives"});
  REQUIRE(lines.size() == 20);
  CHECK(lines.front() == "[0] all_reduce sum         [10, 100]");
  CHECK(lines[16] == "[0] all_to_all             [0, 10, 20, 30]");
  CHECK(lines.back() == "[0] 0 wrong");
}

TEST_CASE("collectives behind computation give the same sums") {
  const auto lines = launch({examples + "overlap"});
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].starts_with("[0] 8 layers of 1024 KiB, 4 ranks: "));
  CHECK(lines[0].ends_with(" ms overlapped"));
}

TEST_CASE("ranks die one after the other, and those that live go on to the right result") {
  Process process({launcher, "--standalone", "--on-failure", "continue", "--nproc_per_node", "4",
                   examples + "shrink", "--deaths", "3"},
                  {{"PATH", "/usr/bin:/bin"}});
  CHECK(process.wait() == 0);
  const std::string output = process.output();
  CAPTURE(output);
  for (const char* line : {"lost rank 3 on ", "] 3 ranks go on with step 9\n",
                           "] 2 ranks go on with step 19\n", "] 1 ranks go on with step 29\n",
                           "] 1 of 4 ranks did 50 steps, the model is 50 everywhere\n"}) {
    CAPTURE(line);
    CHECK(output.find(line) != std::string::npos);
  }
}

TEST_CASE("a world that cannot form names the rank it lacks, on all others") {
  for (const std::string end : {"exit 0", "kill -9 $$"}) {
    CAPTURE(end);
    const std::string script =
        "if [ $RANK = 1 ]; then " + end + "; fi; exec " + examples + "all_reduce";
    Process process({launcher, "--standalone", "--nproc_per_node", "3", "sh", "-c", script},
                    {{"PATH", "/usr/bin:/bin"}});
    const int code = process.wait();
    CAPTURE(process.output());
    CHECK(code == (end == "exit 0" ? 75 : 137));
    // The death may come before the others are members: then they are only stopped.
    if (end == "exit 0") {
      CHECK(process.output().find("rank 1 on ") != std::string::npos);
      CHECK(process.output().find("was lost while the world was forming: exited with 0 before the "
                                  "others") != std::string::npos);
    }
    CHECK(process.output().find("\n  cause : rank 1 ") != std::string::npos);
  }
}
