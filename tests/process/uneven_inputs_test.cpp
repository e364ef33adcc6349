// The example whose ranks have different numbers of inputs, under the real launcher, with nothing
// set: on one node, where ranks share memory, and on two, where they do not.
#include "runtime/base/socket.hpp"
#include "tests/process/job.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

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

/// What came of the ranks: the exit code, the same on all nodes, and all that was printed.
struct Run {
  int code = -1;
  std::string text;

  bool has(const std::string& part) const { return text.find(part) != std::string::npos; }
};

Run run(int number, int inputs, int nodes) {
  const Program program;
  std::vector<std::unique_ptr<Job>> jobs;
  Strings options{"--standalone", "--nproc-per-node", "2"};
  if (nodes == 2) {
    const auto port = free_port();
    options = {"--nnodes", "2", "--rdzv-endpoint", "127.0.0.1:" + std::to_string(port)};
  }
  for (int node = 0; node < nodes; ++node) {
    Strings line = options;
    if (nodes == 2) line.insert(line.end(), {"--node-id", std::string(1, "ab"[node])});
    for (const std::string& word : program.line(number, inputs)) line.push_back(word);
    jobs.push_back(std::make_unique<Job>(line));
  }
  Run result;
  for (const auto& job : jobs) {
    const int code = job->wait().code;
    CHECK((job == jobs.front() || code == result.code));
    result.code = code;
    result.text += job->out() + job->err();
  }
  CHECK_MESSAGE(all_gone(program.token()), "processes are left");
  return result;
}

std::string exhausted(int rank, int inputs) {
  return "Rank " + std::to_string(rank) + " has exhausted all " + std::to_string(inputs) +
         " of its inputs!";
}

constexpr int ways[] = {1, 2};  // Nodes.

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
      CHECK(ran.has("the reducer's all_reduce #" + std::string(number == 2 ? "6" : "8") +
                    " (gradients of bucket 0, sum, f32, 2 elements): rank 1 lost rank 0"));
      // What another node's rank ended with is told only where it failed.
      CHECK((ran.has("exited 0 before the others") ||
             (nodes == 2 && ran.has("it closed the connection"))));
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
    CHECK(count(ran.text, "rank 0 is in join's shadow all_reduce #") >= 2);
    CHECK(count(ran.text, "rank 1 is in barrier #") >= 2);
  }
}

TEST_CASE("case 5, a barrier after the plain loop: both ranks name it and the gradients") {
  for (const int nodes : ways) {
    CAPTURE(nodes);
    const Run ran = run(5, 2, nodes);
    CAPTURE(ran.text);
    CHECK(ran.code == 1);
    CHECK_FALSE(ran.has("has exhausted"));
    CHECK(count(ran.text, "rank 0 is in barrier #6") >= 2);
    CHECK(count(ran.text, "rank 1 is in the reducer's all_reduce #6 (gradients of bucket 0") >= 2);
  }
}

}  // namespace dlaunch::process_test
