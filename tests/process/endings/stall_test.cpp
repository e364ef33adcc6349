// --stall-timeout: jobs that make no progress are ended, those that make any go on.
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/failure_block.hpp"

#include <fstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>
#include <sys/stat.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using nlohmann::json;
using testing::contains;

namespace {

Strings stuck_rank(const std::string& mode) {
  return {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), "60"};
}

Strings shell(const std::string& script) { return {"sh", "-c", script}; }

Strings with(Strings options, const Strings& program) {
  options.insert(options.begin(), {"--shutdown-timeout", "1", "--failure-grace", "0"});
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

/// Does this again and again, for longer than the limit that these tests set: that a job is not
/// ended meanwhile has no event to wait for.
std::string for_a_while(const std::string& what) {
  return "for i in 1 2 3 4 5 6 7 8 9 10; do " + what + "; sleep 0.4; done";
}

/// Rank 1 does this, and rank 0 nothing but wait for its end, at a pipe that is in the folder.
Strings one_of_two(const std::string& does, const std::string& folder) {
  const std::string over = folder + "/over";
  REQUIRE(::mkfifo(over.c_str(), 0600) == 0);
  return shell("if test $RANK = 0; then read end <" + over + "; exit 0; fi; " + does +
               "; echo end >" + over);
}

constexpr const char* limit = "2500ms";
constexpr const char* ended = ": the attempt is ended (--stall-timeout)\n";

}  // namespace

TEST_CASE("ranks in a call that does not go on: the job is ended, and what each does is told") {
  const Folder folder;
  const std::string result = folder.path + "/result";
  Job job(with({"--nproc-per-node", "3", "--stall-timeout", "1", "--result", result},
               stuck_rank("compute")),
          folder.environment());
  CHECK(job.wait().code == 80);
  INFO(job.err());
  CHECK(contains(job.err(), "dlaunch: no rank has made progress for 1 s: "));
  CHECK(contains(job.err(), "in all_reduce #3 [stuck_rank.cpp:"));
  CHECK(contains(job.err(), "rank 2 (in no call for "));
  CHECK(contains(job.err(), ended));
  const auto block = testing::failure_block(job.err());
  CHECK(testing::field_of(block, "cause").starts_with("no rank has made progress for 1 s: rank"));
  CHECK(testing::field_of(block, "ranks") == "ranks 0-2 ended because of it");
  std::ifstream file(result);
  const auto told = json::parse(file);
  CHECK(told["reason"].get<std::string>().starts_with("no rank has made progress for 1 s"));
}

TEST_CASE("ranks that do nothing at all, without the library") {
  const std::string token = unique_token();
  Job job(with({"--nproc-per-node", "2", "--stall-timeout", "1"},
               shell("exec tail -f /dev/null; : " + token)));
  CHECK(job.wait().code == 80);
  INFO(job.err());
  CHECK(contains(job.err(),
                 "no rank has made progress for 1 s: ranks 0-1 (no call of libdlaunch so far)"));
  CHECK(all_gone(token));
}

TEST_CASE("one rank that writes or computes is enough") {
  std::string does;
  SUBCASE("writes") { does = for_a_while("echo step"); }
  SUBCASE("computes") {
    does = "end=$(($(date +%s) + 4)); while test $(date +%s) -lt $end; do :; done";
  }
  const Folder folder;
  Job job(with({"--nproc-per-node", "2", "--stall-timeout", limit}, one_of_two(does, folder.path)));
  CHECK(job.wait().code == 0);
  INFO(job.err());
  CHECK_FALSE(contains(job.err(), "progress"));
}

TEST_CASE("what is declared keeps a job that shows nothing else") {
  SUBCASE("by a script") {
    const Folder folder;
    Job job(with({"--nproc-per-node", "2", "--stall-timeout", limit},
                 one_of_two(for_a_while("echo progress > $DLAUNCH_WORKER_NOTIFY"), folder.path)));
    CHECK(job.wait().code == 0);
    INFO(job.err());
    CHECK_FALSE(contains(job.err(), "progress"));
  }
  SUBCASE("by the library, while the others wait in a call") {
    Job job(with({"--nproc-per-node", "3", "--stall-timeout", limit}, stuck_rank("declare")));
    CHECK(job.wait().code == 0);
    INFO(job.err());
    CHECK_FALSE(contains(job.err(), "no rank has made progress"));
  }
}

TEST_CASE("once something is declared nothing else counts, and other words are told once") {
  Job job(with(
      {"--nproc-per-node", "2", "--stall-timeout", "2"},
      shell("echo forward > $DLAUNCH_WORKER_NOTIFY; echo up > $DLAUNCH_WORKER_NOTIFY; "
            "echo progress > $DLAUNCH_WORKER_NOTIFY; while :; do echo step; sleep 0.2; done")));
  CHECK(job.wait().code == 80);
  CHECK(contains(job.err(), "no rank has made progress for 2 s: ranks 0-1 ("));
  CHECK(count(job.err(), "to the pipe DLAUNCH_WORKER_NOTIFY, which takes progress") == 1);
}

TEST_CASE("a restart may heal it") {
  Job job(with({"--nproc-per-node", "2", "--stall-timeout", "1", "--max-restarts", "1"},
               shell("test $TORCHELASTIC_RESTART_COUNT = 1 || exec tail -f /dev/null")));
  CHECK(job.wait().code == 0);
  INFO(job.err());
  CHECK(contains(job.err(), ended));
  CHECK(contains(job.err(), "all workers are started again (restart 1 of 1)"));
}

TEST_CASE("nothing of the pipe is left, and without the option there is none") {
  const Folder folder;
  Job job(with({"--nproc-per-node", "1", "--stall-timeout", "60", "--log-dir", folder.path},
               shell("test -p $DLAUNCH_WORKER_NOTIFY && echo there")),
          folder.environment());
  CHECK(job.wait().code == 0);
  CHECK(contains(job.out(), "there"));
  Job left({"--nproc-per-node", "1", "find", folder.path, "-name", "notify"});
  CHECK(left.wait().code == 0);
  CHECK(left.out().empty());
  Job without({"--nproc-per-node", "1", "sh", "-c", "echo ${DLAUNCH_WORKER_NOTIFY:-none}"});
  CHECK(without.wait().code == 0);
  CHECK(without.out() == "none\n");
}

TEST_CASE("a job of two nodes that has stalled is ended on both, which tell the same cause") {
  const Folder folder;
  Nodes nodes("2", stuck_rank("compute"),
              {"--nproc-per-node", "2", "--stall-timeout", "1", "--shutdown-timeout", "1"},
              folder.environment());
  nodes.add({"--node-rank", "0"});
  nodes.add({"--node-rank", "1"});
  for (int node = 0; node < 2; ++node) {
    Job& job = nodes[static_cast<std::size_t>(node)];
    CHECK(job.wait().code == 80);
    INFO(job.err());
    CHECK(count(job.err(), ended) == (node == 0 ? 1 : 0));
    const auto cause = testing::field_of(testing::failure_block(job.err()), "cause");
    CHECK(cause.starts_with("no rank has made progress for 1 s: rank"));
    CHECK(contains(cause, "in all_reduce #3 [stuck_rank.cpp:"));
    CHECK(contains(cause, "rank 3 (in no call for "));
  }
}

TEST_CASE("a node whose ranks wait for another's is not to blame while those go on") {
  Nodes nodes("2", shell("test $RANK = 0 && exec sleep 4; " + for_a_while("echo step")),
              {"--nproc-per-node", "1", "--stall-timeout", limit});
  nodes.add({"--node-rank", "0"});
  nodes.add({"--node-rank", "1"});
  for (int node = 0; node < 2; ++node) {
    Job& job = nodes[static_cast<std::size_t>(node)];
    CHECK(job.wait().code == 0);
    INFO(job.err());
    CHECK_FALSE(contains(job.err(), "progress"));
  }
}
