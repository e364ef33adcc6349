// Signals that end a job: which of them take the workers' time away, and which workers they reach.
#include "runtime/base/os/process_stat.hpp"
#include "tests/process/job.hpp"

#include <csignal>
#include <thread>

#include <doctest/doctest.h>

namespace dlaunch::process_test {
namespace {

/// Two workers that say which signals come, and end on none of them.
std::vector<std::string> stubborn(const std::string& token) {
  return {"--nproc-per-node", "2", "--shutdown-timeout", "600", victim(), "stubborn", token, "0"};
}

bool saw_signal(Job& job, int number) {
  return job.saw("] got " + std::to_string(number) + "\n", 2);
}

/// The workers' process numbers, as each tells its own.
std::vector<pid_t> told_pids(const std::string& out) {
  std::vector<pid_t> pids;
  const std::string word = "READY ";
  for (auto at = out.find(word); at != std::string::npos; at = out.find(word, at + 1)) {
    pids.push_back(std::stoi(out.substr(at + word.size())));
  }
  return pids;
}

bool stands_still(pid_t pid) {
  const auto deadline = Clock::now() + patience;
  while (Clock::now() < deadline) {
    const auto stat = process_stat(pid);
    if (stat && stat->state == 'T') return true;
    std::this_thread::yield();
  }
  return false;
}

}  // namespace

TEST_CASE("a SIGHUP behind SIGTERM, as systemd sends it, takes nothing of the workers' time") {
  const std::string token = unique_token();
  Job job(stubborn(token));
  REQUIRE(job.saw("READY", 2));
  job.send(SIGTERM);
  REQUIRE(saw_signal(job, SIGTERM));
  job.send(SIGHUP);
  // The lower number is taken first: SIGHUP has come when this one has.
  job.send(SIGUSR1);
  REQUIRE(saw_signal(job, SIGUSR1));
  CHECK(job.out().find("] got " + std::to_string(SIGHUP) + "\n") == std::string::npos);
  CHECK(job.err().find("killing") == std::string::npos);
  job.send(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(all_gone(token));
}

TEST_CASE("another signal reaches the workers, and kills when it comes again") {
  const std::string token = unique_token();
  Job job(stubborn(token));
  REQUIRE(job.saw("READY", 2));
  job.send(SIGINT);
  REQUIRE(saw_signal(job, SIGINT));
  job.send(SIGTERM);
  REQUIRE(saw_signal(job, SIGTERM));
  job.send(SIGUSR1);
  REQUIRE(saw_signal(job, SIGUSR1));
  CHECK(job.err().find("killing") == std::string::npos);
  job.send(SIGTERM);
  CHECK(job.wait().code == 128 + SIGINT);
  CHECK(job.err().find("killing what still runs, ranks 0-1") != std::string::npos);
  CHECK(all_gone(token));
}

TEST_CASE("a worker that is stopped is continued, so that it takes the signal to end") {
  const std::string token = unique_token();
  Job job(stubborn(token));
  REQUIRE(job.saw("READY", 2));
  for (const pid_t pid : told_pids(job.out())) {
    REQUIRE(::kill(pid, SIGSTOP) == 0);
    REQUIRE(stands_still(pid));
  }
  job.send(SIGTERM);
  REQUIRE(saw_signal(job, SIGTERM));
  job.send(SIGTERM);
  CHECK(job.wait().code == 128 + SIGTERM);
  CHECK(all_gone(token));
}

}  // namespace dlaunch::process_test
