// --stack-on-timeout: where the ranks are when a job is ended for a timeout, written down first.
#include "tests/process/nodes.hpp"
#include "tests/process/status_folder.hpp"
#include "tests/support/expect.hpp"

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::process_test;
using testing::contains;

namespace {

/// A gdb that knows one frame, a status folder and a folder for logs.
struct Place {
  explicit Place(const std::string& gdb = "echo 'Thread 1 (of a double):'; echo '#0 deep ()'") {
    const std::string file = folder.path + "/gdb";
    std::ofstream(file) << "#!/bin/sh\n" << gdb << "\n";
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  Job::Environment environment() const {
    auto variables = folder.environment();
    variables["PATH"] = folder.path + ":/usr/bin:/bin";
    return variables;
  }
  /// The folder is that of the only job's first attempt.
  std::string stacks_file(const std::string& name = "stacks.txt") const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(logs())) {
      if (entry.path().filename() == name) return entry.path().string();
    }
    return "";
  }
  std::string logs() const { return folder.path + "/logs"; }

  Folder folder;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

Strings stuck_rank(const std::string& mode) {
  return {DLAUNCH_BINARY_DIR "/tests/stuck_rank", mode, unique_token(), "1"};
}

Strings with(Strings options, const Strings& program) {
  options.insert(options.end(), program.begin(), program.end());
  return options;
}

}  // namespace

TEST_CASE("a call times out: the absent rank's stack is kept, and the summary names the file") {
  const Place place;
  Job job(with({"--rdzv-id", "demo", "--nproc-per-node", "3", "--stack-on-timeout", "--log-dir",
                place.logs()},
               stuck_rank("compute")),
          place.environment());
  CHECK(job.wait().code == 1);
  INFO(job.err());
  const std::string file = place.stacks_file();
  REQUIRE_FALSE(file.empty());
  CHECK(contains(file, "/attempt_0/stacks.txt"));
  CHECK(contains(job.err(), "dlaunch: the ranks' stacks are in " + file + "\n"));
  CHECK(contains(job.err(), "/attempt_0/stacks.txt\n====="));
  CHECK(contains(job.err(), "\n  stacks: rank"));
  CHECK(contains(job.err(), " in deep\n  see   : "));
  const std::string stacks = text_of(file);
  // The others may have ended by then.
  CHECK(stacks.starts_with("rank"));
  CHECK(contains(stacks.substr(0, stacks.find('\n')), " in deep"));
  CHECK(contains(stacks, "rank 2 (pid "));
  CHECK(contains(stacks, ", stuck_rank), by gdb:\nThread 1 (of a double):\n#0 deep ()\n"));
}

TEST_CASE("without a folder for logs they go to stderr, shortened") {
  const Place place;
  Job job({"--nproc-per-node", "2", "--stack-on-timeout", "--straggler-timeout", "100ms", "sh",
           "-c", "test $RANK = 0 || exec tail -f /dev/null"},
          place.environment());
  CHECK(job.wait().code == 80);
  CHECK(contains(job.err(), "rank 1 is in deep\n"));
  CHECK(contains(job.err(), ", tail), by gdb:\n"));
}

TEST_CASE("a rank that fails of a limit of PyTorch's own: where the one is that it waited for") {
  const Place place;
  Job job({"--nproc-per-node", "2", "--stack-on-timeout", "--log-dir", place.logs(), "--tee", "3",
           "sh", "-c",
           "test $RANK = 1 && exec tail -f /dev/null; echo 'RuntimeError: [gloo/unbound_buffer.cc:"
           "81] Timed out waiting 3000ms for recv operation to complete' >&2; exit 1"},
          place.environment());
  CHECK(job.wait().code == 1);
  INFO(job.err());
  CHECK(contains(job.err(), "\n  stacks: rank 1 is in deep\n"));
  CHECK(contains(text_of(place.stacks_file()), "rank 1 (pid "));
}

TEST_CASE("so it is for a job that has stalled") {
  const Place place;
  Job job({"--nproc-per-node", "2", "--stack-on-timeout", "--stall-timeout", "1", "--log-dir",
           place.logs(), "sh", "-c", "exec tail -f /dev/null"},
          place.environment());
  CHECK(job.wait().code == 80);
  INFO(job.err());
  CHECK(contains(text_of(place.stacks_file()), "rank 1 (pid "));
  CHECK(contains(job.err(), "/attempt_0/stacks.txt\n====="));
}

TEST_CASE("a tool that does not end holds up the end for half of --shutdown-timeout") {
  const Place place("while :; do :; done");
  const std::string token = unique_token();
  Job job({"--nproc-per-node", "2", "--stack-on-timeout", "--straggler-timeout", "100ms",
           "--shutdown-timeout", "2", "--log-dir", place.logs(), "sh", "-c",
           "test $RANK = 0 || exec tail -f /dev/null; : " + token},
          place.environment());
  CHECK(job.wait().code == 80);
  // The kernel tells what gdb did not, unless the machine is so slow that there is no time for it.
  const bool told = contains(text_of(place.stacks_file()), "did not end within 750 ms");
  const bool late = contains(job.err(), "could not be taken: it did not end within 1 s");
  CHECK((told || late));
  CHECK(all_gone(token));
}

TEST_CASE("while stacks are taken for long it is told") {
  const Place place("while :; do :; done");
  Job job({"--nproc-per-node", "2", "--stack-on-timeout", "--straggler-timeout", "100ms",
           "--shutdown-timeout", "8", "--log-dir", place.logs(), "sh", "-c",
           "test $RANK = 0 || exec tail -f /dev/null"},
          place.environment());
  REQUIRE(job.saw(
      "dlaunch: the ranks' stacks are being taken (--stack-on-timeout), for 4 s at most\n"));
  job.send(SIGTERM);
  job.send(SIGTERM);
  CHECK(job.wait().code == 80);
}

TEST_CASE("a user who stops the job does not wait for stacks") {
  const Place place;
  Job job(with({"--nproc-per-node", "2", "--stack-on-timeout", "--log-dir", place.logs()},
               {victim(), "tree", unique_token()}),
          place.environment());
  REQUIRE(job.saw("READY", 2));
  job.send(SIGTERM);
  CHECK(job.wait().code == 143);
  CHECK(place.stacks_file().empty());
}

TEST_CASE("the node of the absent rank keeps its stack, though the call timed out elsewhere") {
  const Place place;
  Nodes nodes("2", stuck_rank("compute"),
              {"--nproc-per-node", "1", "--rdzv-id", "two", "--stack-on-timeout", "--log-dir",
               place.logs()},
              place.environment());
  Job& first = nodes.add({"--node-rank", "0", "--node-id", "a"});
  Job& second = nodes.add({"--node-rank", "1", "--node-id", "b"});
  CHECK(first.wait().code == 1);
  CHECK(second.wait().code == 1);
  INFO(second.err());
  const std::string file = place.stacks_file("stacks.txt.1");
  REQUIRE_FALSE(file.empty());
  CHECK(contains(second.err(), "the ranks' stacks are in " + file));
  CHECK(contains(text_of(file), "rank 1 (pid "));
}
