// A worker that needs more time to save its work puts the job's deadline off.
#include "tests/process/nodes.hpp"
#include "tests/support/expect.hpp"

#include <chrono>
#include <csignal>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using testing::contains;

namespace {

Strings shell(const std::string& script) { return {"sh", "-c", script}; }

Strings with(Strings options, const Strings& program) {
  options.insert(options.begin(), {"--nproc-per-node", "2", "--shutdown-timeout", "1"});
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

constexpr const char* asks = "test $RANK = 1 || echo extend 60 > $DLAUNCH_WORKER_NOTIFY; ";

}  // namespace

TEST_CASE("with the time that it asks for a worker saves its work") {
  // It works beyond the first deadline: that nothing ends it then has no event to wait for.
  Job job(with({"--deadline", "4", "--deadline-latest", "10m", "--deadline-notice", "0"},
               shell(std::string(asks) + "sleep 6; echo saved")));
  CHECK(job.wait().code == 0);
  INFO(job.err());
  CHECK(count(job.err(), "dlaunch: the deadline is put off to ") == 1);
  CHECK(contains(job.err(), "Z: a worker needs 60 s\n"));
  CHECK(count(job.out(), "saved") == 2);
}

TEST_CASE("there is no more time than --deadline-latest allows") {
  const std::string token = unique_token();
  Job job(with({"--deadline", "4", "--deadline-latest", "6"},
               shell(asks + std::string("exec tail -f /dev/null; : ") + token)));
  CHECK(job.wait().code == 75);
  INFO(job.err());
  CHECK(contains(job.err(), "Z, the latest there may be (--deadline-latest): a worker needs 60 s"));
  CHECK(contains(job.err(), "Z has come: the workers are stopped"));
  CHECK(all_gone(token));
}

TEST_CASE("the scheduler's end is never passed") {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  Job job(with({}, shell(asks + std::string("exec tail -f /dev/null"))),
          {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_END_TIME", std::to_string(now + 60)}});
  CHECK(job.saw("dlaunch: a worker needs 60 s, and the deadline "));
  CHECK(job.saw("Z cannot be put off further (--deadline-latest)\n"));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
}

TEST_CASE("all nodes of the job put it off, by a call of the library on one of them") {
  Nodes nodes("2", {DLAUNCH_BINARY_DIR "/tests/stuck_rank", "extend", unique_token(), "60"},
              {"--nproc-per-node", "1", "--stuck-after", "0", "--deadline", "7",
               "--deadline-latest", "10m"});
  nodes.add({"--node-rank", "0"});
  nodes.add({"--node-rank", "1"});
  for (int node = 0; node < 2; ++node) {
    Job& job = nodes[static_cast<std::size_t>(node)];
    CHECK(job.wait().code == 0);
    INFO(job.err());
    CHECK(count(job.err(), "the deadline is put off to ") == node);
    CHECK_FALSE(contains(job.err(), "has come"));
  }
}
