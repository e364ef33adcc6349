// Agents that are killed, at work and while a round forms.
#include "tests/process/network/network_job.hpp"
#include "tests/support/expect.hpp"

#include <csignal>
#include <random>
#include <set>

#include <doctest/doctest.h>
#include <poll.h>

namespace dlaunch::process_test {
namespace {

using testing::contains;
using testing::is_full;

/// Nothing is to be waited for but time: the moment of the kill is what is varied.
void let_pass(std::chrono::microseconds time) {
  const timespec pause{0, std::chrono::nanoseconds(time).count()};
  ::ppoll(nullptr, 0, &pause, nullptr);
}

/// The agent, or who is to become its front.
void kill_launcher(const Job& job) {
  const auto children = children_of(job.pid());
  ::kill(children.empty() ? job.pid() : children.front(), SIGKILL);
}

/// A job one of whose agents is killed at a moment of which the seed decides.
class HitJob {
 public:
  HitJob(unsigned seed, std::chrono::microseconds length, const NetworkJob::Strings& options)
      : seed_(seed), job_(network_, seed % 2 == 0 ? "2:3" : "3", options, 1) {
    std::mt19937 random(seed);
    killed_ = std::uniform_int_distribution<>(0, 2)(random);
    const auto limit = std::min<std::chrono::microseconds>(length, std::chrono::milliseconds(999));
    const auto moment = std::uniform_int_distribution<long long>(0, limit.count())(random);
    for (int node = 0; node < 3; ++node) job_.add();
    let_pass(std::chrono::microseconds(moment));
    kill_launcher(job_[killed_]);
  }
  /// Node a, which hosts the rendezvous, was the one.
  bool host_is_killed() const { return killed_ == 0; }
  /// The code that all others end with, all of them alike. One that had not heard of the epoch when
  /// its host died, and another had, cannot know of it: it ends as one that finds nobody.
  int others_end() {
    CAPTURE(seed_);
    job_[killed_].wait();
    std::set<int> ends, unaware;
    for (int node = 0; node < 3; ++node) {
      if (node == killed_) continue;
      const int code = job_[node].wait().code;
      const bool missed_it = host_is_killed() && !contains(job_[node].err(), "epoch");
      (missed_it ? unaware : ends).insert(code);
    }
    CHECK_MESSAGE((unaware.size() <= 1 && !unaware.contains(0)), job_.said());
    if (ends.empty()) ends = unaware;
    job_.check_places();
    REQUIRE_MESSAGE(ends.size() == 1, job_.said());
    const int code = *ends.begin();
    CHECK_MESSAGE((code == 0 || code == 69 || code == 76 || code == 79), code << job_.said());
    return code;
  }

 private:
  unsigned seed_;
  int killed_ = 0;
  Network network_{3};
  NetworkJob job_;
};

}  // namespace

TEST_CASE("kill -9 of an agent: its processes die, and the others end and name it") {
  Network network(3);
  NetworkJob job(network, "3");
  for (int node = 0; node < 3; ++node) job.add({"--nproc-per-node", "2"});
  for (int node = 0; node < 3; ++node) REQUIRE_MESSAGE(job[node].saw("place 1 ", 2), job.said());
  // The front, the agent, two workers, and what those left behind.
  REQUIRE(job.processes(2).size() == 6);
  bool reset = true;
  SUBCASE("its kernel closes the connection") {}
  SUBCASE("its machine is gone, too") { reset = false; }
  if (!reset) network.cut(2);
  const Stretch dead("from the kill until no process of the node is left");
  const Stretch told("from the kill until the others have ended");
  ::kill(job[2].agent(), SIGKILL);
  job[2].wait();
  CHECK(job.processes(2).empty());
  dead.ended();
  for (int node = 0; node < 2; ++node) {
    CHECK(job[node].wait().code == 79);
    CHECK_MESSAGE(contains(job[node].err(), "node c"), job.said());
  }
  told.ended();
  job.check_places();
}

TEST_CASE("kill -9 of an agent at any moment of a rendezvous: no hang, never two rank maps") {
  const NetworkJob::Strings times = {
      "--rdzv-conf", "join_timeout=2s,last_call_timeout=200ms,keep_alive_interval=200ms"};
  Clock::time_point began;
  {
    Network network(3);
    NetworkJob whole(network, "2:3", times, 1);
    began = Clock::now();
    for (int node = 0; node < 3; ++node) whole.add();
    for (int node = 0; node < 3; ++node) CHECK(whole[node].wait().code == 0);
    whole.check_places();
  }
  const auto length = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  // Some at a time, each job on a network of its own.
  constexpr unsigned at_once = 5;
  const unsigned seeds = is_full() ? 100 : 20;
  std::map<int, int> codes;
  unsigned hosts_killed = 0;
  for (unsigned first = 0; first < seeds; first += at_once) {
    std::vector<std::unique_ptr<HitJob>> jobs;
    for (unsigned seed = first; seed < first + at_once; ++seed) {
      jobs.push_back(std::make_unique<HitJob>(seed, length, times));
    }
    for (const auto& job : jobs) {
      ++codes[job->others_end()];
      hosts_killed += job->host_is_killed() ? 1 : 0;
    }
  }
  // The host's death is the hardest case: a tenth of the jobs at least.
  CHECK(hosts_killed * 10 >= seeds);
  for (const auto& [code, times_seen] : codes) {
    MESSAGE("the others ended with " << code << " " << times_seen << " times");
  }
}

}  // namespace dlaunch::process_test
