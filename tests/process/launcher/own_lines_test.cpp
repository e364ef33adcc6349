// What dlaunch itself prints beside its workers' lines: --quiet, --log-format and --timings.
#include "tests/process/job.hpp"
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"
#include "tests/support/temporary_folder.hpp"

#include <csignal>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

namespace dlaunch::process_test {
namespace {

using nlohmann::json;
using testing::contains;
using testing::failure_block;
using testing::field_of;

/// Two ranks run this; an option that has no effect is said, too.
Strings two(Strings options, const std::string& script) {
  options.insert(options.end(), {"--standalone", "--nproc-per-node", "2", "--start-method", "fork",
                                 "sh", "-c", script});
  return options;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("without --quiet a note is said, with it only the program's output is there") {
  Job loud(two({}, "echo hi"));
  CHECK(loud.wait().code == 0);
  CHECK(contains(loud.err(), "dlaunch: --start-method fork has no effect"));
  Job job(two({"--quiet"}, "echo hi"));
  CHECK(job.wait().code == 0);
  CHECK(job.err().empty());
  CHECK(count(job.out(), "] hi\n") == 2);
}

TEST_CASE("--quiet keeps the failure block, and nothing else of ours") {
  Job job(two({"--quiet", "--max-restarts", "1"}, "exit 3"));
  CHECK(job.wait().code == 3);
  CHECK(job.err().starts_with(std::string(80, '=') + "\nsh FAILED after 1 of 1 restarts\n"));
  CHECK(contains(field_of(failure_block("\n" + job.err()), "cause"), " exited with 3"));
}

TEST_CASE("--quiet keeps errors that no block tells") {
  Job job(two({"--quiet", "--result", "/dev/full"}, "exit 0"));
  CHECK(job.wait().code == 70);
  CHECK(job.err() == "dlaunch: cannot write /dev/full: No space left on device\n");
}

TEST_CASE("--log-format json: each line of ours is an object, the workers' lines stay") {
  Job job(two({"--log-format", "json", "--rdzv-id", "j"}, "[ $RANK = 1 ] && exit 3; sleep 1000"));
  CHECK(job.wait().code == 3);
  INFO(job.err());
  const auto lines = lines_of(job.err());
  REQUIRE(lines.size() >= 2);
  for (const auto& line : lines) {
    const auto object = json::parse(line);
    for (const char* name : {"time", "level", "message", "job", "node"}) {
      CHECK_MESSAGE(object.contains(name), name);
    }
  }
  const auto failed = json::parse(lines.back());
  CHECK(failed["event"] == "failed");
  CHECK(failed["level"] == "error");
  CHECK(failed["rank"] == 1);
  CHECK(failed["cause"] == "rank 1 exited with 3");
  CHECK(failed["others"] == "rank 0 ended because of it");
  CHECK_FALSE(contains(job.err(), "===="));
}

TEST_CASE("--log-format json among several nodes names job and node") {
  Nodes nodes("2", {"sh", "-c", "exit 0"}, {"--log-format", "json", "--rdzv-id", "meeting"});
  Job& a = nodes.add({"--node-id", "a"});
  REQUIRE(a.saw("\"node\":\"a\""));
  Job& b = nodes.add({"--node-id", "b"});
  CHECK(a.wait().code == 0);
  CHECK(b.wait().code == 0);
  for (const auto& line : lines_of(a.err())) CHECK(json::parse(line)["job"] == "meeting");
}

TEST_CASE("--timings tells the phases at the end, also of a quiet job") {
  Job job(two({"--quiet", "--timings", "text"}, "exit 0"));
  CHECK(job.wait().code == 0);
  CHECK(job.err().starts_with("dlaunch: timings: options "));
  for (const char* phase : {", rendezvous ", ", start ", ", run ", ", stop "}) {
    CHECK_MESSAGE(contains(job.err(), phase), job.err());
  }
  CHECK(count(job.err(), "\n") == 1);
}

TEST_CASE("--timings json is one object, and --result has the same") {
  const testing::TemporaryFolder folder;
  const auto result = (folder.path() / "result").string();
  Job job(two({"--quiet", "--timings", "json", "--result", result}, "exit 3"));
  CHECK(job.wait().code == 3);
  const auto object = json::parse(lines_of(job.err()).back());
  CHECK(object["event"] == "timings");
  CHECK(object["attempt"] == 0);
  CHECK(object["seconds"].contains("run"));
  std::ifstream file(result);
  CHECK(json::parse(file)["timings"] == object["seconds"]);
}

TEST_CASE("--timings of a program with the runtime tells the first join") {
  Job job({"--standalone", "--nproc-per-node", "2", "--timings", "text",
           DLAUNCH_BINARY_DIR "/tests/ending_rank", "none", "-1", unique_token()});
  CHECK(job.wait().code == 0);
  CHECK_MESSAGE(contains(job.err(), ", first join "), job.err());
}

}  // namespace dlaunch::process_test
