// The example whose ranks have different numbers of inputs, under the real launcher, with nothing
// set: on one node, where ranks share memory, and on two, where they do not.
#include "runtime/base/os/socket.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/failure_block.hpp"

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace dlaunch::process_test {
namespace {

using Strings = std::vector<std::string>;

/// The example under a name that no other process has.
class Program {
 public:
  Program() : token_(unique_token()) {
    path_ = std::filesystem::temp_directory_path() / ("uneven_inputs_" + token_);
    std::filesystem::create_symlink(DLAUNCH_BINARY_DIR "/bin/examples/uneven_inputs", path_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  Strings line(int number, int inputs) const {
    return {path_.string(), "--case", std::to_string(number), "--inputs", std::to_string(inputs)};
  }
  const std::string& token() const { return token_; }

 private:
  std::string token_;
  std::filesystem::path path_;
};

/// The outcome: the exit code, the same on all nodes, and all that was printed.
struct Run {
  int code = -1;
  std::string text;
  Clock::duration took{};

  bool has(const std::string& part) const { return text.find(part) != std::string::npos; }
  /// The rank itself said it, as one line of its own.
  bool said(int rank, const std::string& line) const {
    const std::string end = std::to_string(rank) + "] uneven_inputs: " + line + "\n";
    return count(text, "[" + end) + count(text, ":" + end) == 1;  // One node, or several.
  }
};

/// " [uneven_inputs.cpp:42]": where the example's line begins so.
std::string place_of(const std::string& begin) {
  std::ifstream source(DLAUNCH_SOURCE_DIR "/docs/examples/uneven_inputs.cpp");
  int number = 1;
  for (std::string line; std::getline(source, line); ++number) {
    const auto first = line.find_first_not_of(' ');
    if (first == std::string::npos || !std::string_view(line).substr(first).starts_with(begin)) {
      continue;
    }
    return " [uneven_inputs.cpp:" + std::to_string(number) + "]";
  }
  FAIL("the example has no line that begins with " << begin);
  return "";
}

/// Two ranks of one node, or one on each of two, run what `program` says.
std::vector<std::unique_ptr<Job>> start(Strings program, int nodes, const Strings& more = {},
                                        const Job::Environment& environment = {}) {
  std::vector<std::unique_ptr<Job>> jobs;
  Strings options{"--standalone", "--nproc-per-node", "2"};
  if (nodes == 2) {
    const auto port = free_port();
    options = {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + std::to_string(port)};
  }
  options.insert(options.end(), more.begin(), more.end());
  for (int node = 0; node < nodes; ++node) {
    Strings line = options;
    if (nodes == 2) line.insert(line.end(), {"--node-id", std::string(1, "ab"[node])});
    line.insert(line.end(), program.begin(), program.end());
    jobs.push_back(std::make_unique<Job>(line, environment));
  }
  return jobs;
}

Run run_once(int number, int inputs, int nodes) {
  const Program program;
  const auto began = Clock::now();
  const auto jobs = start(program.line(number, inputs), nodes);
  Run result;
  for (const auto& job : jobs) {
    const int code = job->wait().code;
    CHECK((job == jobs.front() || code == result.code));
    result.code = code;
    result.text += job->out() + job->err();
  }
  result.took = Clock::now() - began;
  CHECK_MESSAGE(all_gone(program.token()), "processes are left");
  return result;
}

/// All of it, from the start to the last node's end, takes less than five seconds: where other
/// processes keep the machine busy, in one of three attempts.
Run run(int number, int inputs, int nodes) {
  Run result;
  for (int attempt = 0; attempt < 3; ++attempt) {
    result = run_once(number, inputs, nodes);
    if (result.took < std::chrono::seconds(5)) return result;
  }
  CHECK_MESSAGE(result.took < std::chrono::seconds(5), result.text);
  return result;
}

std::string exhausted(int rank, int inputs) {
  return "Rank " + std::to_string(rank) + " has exhausted all " + std::to_string(inputs) +
         " of its inputs!";
}

std::string host_name() {
  std::array<char, 256> name{};
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  return name.data();
}

/// Each rank has an error of its own that shows both sides.
void check_both_said(const Run& ran, const std::string& one, const std::string& other) {
  for (int rank = 0; rank < 2; ++rank) {
    CAPTURE(rank);
    CHECK((ran.said(rank, one + ", but " + other) || ran.said(rank, other + ", but " + one)));
  }
}

constexpr int ways[] = {1, 2};  // Nodes.

// ---- The flight dump. ----

using nlohmann::json;

/// One collective of each rank: "join's all_reduce (who is here)".
using Row = std::pair<std::string, std::string>;

// The rows of the trace, under the names that they have here.
const std::string forward_1 = "join's all_reduce (who is here)";
const std::string forward_2 = "join's all_reduce (whether to sum gradients)";
const std::string backward = "the reducer's all_reduce (gradients of bucket 0)";
const std::string joined_count = "join's shadow all_reduce (who is here)";
const std::string joined_check = "join's shadow all_reduce (whether to sum gradients)";
const std::string joined_hook = "join's shadow all_reduce (gradients of bucket 0)";
const std::string common_rank = "join's all_reduce (who joined last)";
const std::string final_values = "the reducer's broadcast (final values)";
const std::string barrier = "barrier";

std::vector<Row> both(const Strings& calls) {
  std::vector<Row> rows;
  for (const auto& call : calls) rows.emplace_back(call, call);
  return rows;
}

void add(std::vector<Row>& rows, const std::vector<Row>& more) {
  rows.insert(rows.end(), more.begin(), more.end());
}

/// Cases 1, 4 and 6, with two inputs on rank 0 and three on rank 1.
std::vector<Row> expected_rows(int number) {
  std::vector<Row> rows;
  for (int step = 0; step < 2; ++step) {
    add(rows, both({forward_1, forward_2, backward}));
    if (number == 4) add(rows, both({barrier}));
  }
  add(rows, {{joined_count, forward_1}, {joined_check, forward_2}, {joined_hook, backward}});
  if (number == 4) {
    add(rows, {{joined_count, barrier}});  // Both ranks have their error there.
    return rows;
  }
  add(rows, both({joined_count, common_rank, final_values}));
  if (number == 6) add(rows, both({barrier}));
  return rows;
}

/// How the reducer began, which is before the trace, and made its buckets anew, which is beside it.
bool is_told(const std::string& purpose) {
  return purpose != "parameters" && purpose != "order of the buckets" &&
         purpose != "whose buffers count";
}

std::string text(const json& field) {
  return field.is_string() ? field.get<std::string>() : std::string();
}

Strings calls_of(const json& rank) {
  Strings calls;
  for (const auto& record : rank["records"]) {
    const std::string owner = text(record["owner"]), purpose = text(record["purpose"]);
    if (!is_told(purpose)) continue;
    calls.push_back((owner.empty() ? "" : owner + " ") + text(record["op"]) +
                    (purpose.empty() ? "" : " (" + purpose + ")"));
  }
  return calls;
}

void check_rows(const json& ranks, int number) {
  REQUIRE(ranks.size() == 2);
  const Strings here = calls_of(ranks[0]), there = calls_of(ranks[1]);
  const auto rows = expected_rows(number);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CAPTURE(i);
    REQUIRE(here.size() > i);
    REQUIRE(there.size() > i);
    CHECK(here[i] == rows[i].first);
    CHECK(there[i] == rows[i].second);
  }
  CHECK(here.size() == rows.size());
  CHECK(there.size() == rows.size());
}

}  // namespace

TEST_CASE("cases 1 and 6, under a join: both ranks finish, with the same parameters") {
  for (const int nodes : ways) {
    for (const int number : {1, 6}) {
      CAPTURE(nodes);
      CAPTURE(number);
      for (const int inputs : {0, 1, 2, 5}) {
        const Run ran = run(number, inputs, nodes);
        CAPTURE(ran.text);
        CHECK(ran.code == 0);
        CHECK(ran.has(exhausted(0, inputs)));
        CHECK(ran.has(exhausted(1, inputs + 1)));
        const std::string ends = inputs == 0   ? "w = 0.725000, b = 0.400000"
                                 : inputs == 1 ? "w = 1.261719, b = 0.682188"
                                 : inputs == 2 ? "w = 1.853908, b = 0.911652"
                                               : "w = 1.847167, b = 0.947515";
        CHECK(count(ran.text, ends) == 2);
      }
    }
  }
}

TEST_CASE("cases 2 and 3, the plain loop: rank 1 is told who is absent, and why") {
  for (const int nodes : ways) {
    for (const int number : {2, 3}) {
      CAPTURE(nodes);
      CAPTURE(number);
      const Run ran = run(number, 2, nodes);
      CAPTURE(ran.text);
      CHECK(ran.code == 75);
      CHECK(ran.has(exhausted(0, 2)));
      CHECK_FALSE(ran.has(exhausted(1, 3)));
      CHECK(ran.said(1, "the reducer's all_reduce #" + std::string(number == 2 ? "6" : "8") +
                            " (gradients of bucket 0, sum, f32, 2 elements): rank 1 lost rank 0 "
                            "on " +
                            host_name() + ": exited with 0 before the others" +
                            place_of("reducer.ready(0);")));
      // The root cause, on the rank's own node and on another one.
      CHECK(count(ran.text, "\n  cause : rank 0") == nodes);
      CHECK(testing::field_of(testing::failure_block(ran.text), "cause") ==
            (nodes == 1 ? "rank 0" : "rank 0 on " + host_name()) +
                " exited with 0 before the others");
    }
  }
}

TEST_CASE("case 4, a barrier in the joined loop: both ranks name the shadow and the barrier") {
  for (const int nodes : ways) {
    CAPTURE(nodes);
    const Run ran = run(4, 2, nodes);
    CAPTURE(ran.text);
    CHECK(ran.code == 1);
    CHECK_FALSE(ran.has("has exhausted"));
    check_both_said(ran,
                    "rank 0 is in join's shadow all_reduce #15 (who is here, sum, u64, 11 "
                    "elements)" +
                        place_of("if (join) join->finish();"),
                    "rank 1 is in barrier #15" + place_of("if (barrier_in_loop) comm.barrier();"));
  }
}

TEST_CASE("case 5, a barrier after the plain loop: both ranks name it and the gradients") {
  for (const int nodes : ways) {
    CAPTURE(nodes);
    const Run ran = run(5, 2, nodes);
    CAPTURE(ran.text);
    CHECK(ran.code == 1);
    CHECK_FALSE(ran.has("has exhausted"));
    check_both_said(ran, "rank 0 is in barrier #6" + place_of("if (number == 5 || number == 6)"),
                    "rank 1 is in the reducer's all_reduce #6 (gradients of bucket 0, sum, f32, 2 "
                    "elements)" +
                        place_of("reducer.ready(0);"));
  }
}

TEST_CASE("the flight of cases 1 and 6 has the trace's rows, one by one") {
  for (const int nodes : ways) {
    for (const int number : {1, 6}) {
      CAPTURE(nodes);
      CAPTURE(number);
      const Program program;
      const Folder folder;
      // The workers stay for a while when the example has ended, for who asks.
      Strings line{"sh", "-c", "\"$@\" && echo ENDED && exec tail -f /dev/null", program.token()};
      for (const auto& word : program.line(number, 2)) line.push_back(word);
      const auto jobs = start(line, nodes, {"--shutdown-timeout", "1"}, folder.environment());
      for (const auto& job : jobs) REQUIRE(job->saw("ENDED", nodes == 1 ? 2 : 1));
      const auto flight = json::parse(status(folder, {"--flight"}));
      check_rows(flight["ranks"], number);
      CHECK(flight["divergence"].is_null());
      for (const auto& job : jobs) job->send(SIGTERM);
      for (const auto& job : jobs) job->wait();
      CHECK(all_gone(program.token()));
    }
  }
}

TEST_CASE("the flight of case 4 has the trace's rows as far as both ranks go") {
  for (const int nodes : ways) {
    CAPTURE(nodes);
    const Program program;
    const Folder folder;
    const std::string path = folder.path + "/flight.json";
    const auto jobs = start(program.line(4, 2), nodes, {"--flight-file", path});
    for (const auto& job : jobs) CHECK(job->wait().code == 1);
    std::map<int, json> by_rank;
    for (int node = 0; node < nodes; ++node) {
      std::ifstream file(node == 0 ? path : path + ".1");
      const json flight = json::parse(file);
      for (const auto& rank : flight["ranks"]) by_rank[rank["rank"].get<int>()] = rank;
      // The other node's agent may have ended by then.
      if (flight["ranks"].size() < 2) continue;
      const auto& calls = flight["divergence"]["calls"];
      CHECK(flight["divergence"]["kind"] == "mismatch");
      CHECK(text(calls[0]["call"]).starts_with("join's shadow all_reduce #"));
      CHECK(text(calls[1]["call"]).starts_with("barrier #"));
    }
    json ranks = json::array();
    for (const auto& [rank, known] : by_rank) ranks.push_back(known);
    check_rows(ranks, 4);
    for (const auto& rank : ranks) CHECK(rank["records"].back()["state"] == "failed");
  }
}

}  // namespace dlaunch::process_test
