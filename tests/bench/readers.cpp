// What readers of the status cost agents: how long a heartbeat takes to be answered at a dlaunchd
// with N agents of one job, while nobody reads the status, and while so many read it all the time.
// And what that dlaunchd computes for all their heartbeats, and for what they tell of their ranks'
// calls: eight ranks each that do the same, or that all do something else.
//
//     readers DLAUNCHD N READERS [SECONDS]
#include "tests/bench/crowd.hpp"
#include "tests/bench/measured_daemon.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::bench;
using Milliseconds = std::chrono::duration<double, std::milli>;

/// Reads this page again and again, until told to stop; returns how often.
std::size_t read_pages(const Address& http, const std::string& page,
                       const std::atomic<bool>& stop) {
  std::size_t count = 0;
  while (!stop) {
    unique_fd fd = connect_tcp(http, Clock::now() + std::chrono::seconds(10));
    const std::string request = "GET " + page + " HTTP/1.0\r\n\r\n";
    if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) fail("no request");
    char some[65536];
    while (::recv(fd.get(), some, sizeof some, 0) > 0) {
    }
    ++count;
  }
  return count;
}

/// One heartbeat after the other, each once the one before it is answered.
std::vector<double> beat_for(Crowd& crowd, Clock::duration time) {
  std::vector<double> took;
  Bytes scratch(64u << 10);
  Agent& agent = crowd.agents().front();
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
    const auto begin = Clock::now();
    const std::size_t before = agent.beats();
    agent.beat();
    while (agent.beats() == before) agent.await(scratch);
    took.push_back(Milliseconds(Clock::now() - begin).count());
  }
  std::ranges::sort(took);
  return took;
}

/// So many entries for eight ranks, in a call of this number.
std::vector<rendezvous::RankCalls> calls(std::uint64_t sequence, int entries) {
  using rendezvous::RankCalls;
  std::vector<RankCalls> all;
  for (int i = 0; i < entries; ++i) {
    all.push_back({.ranks = 8 / entries,
                   .state = RankCalls::State::in_call,
                   .call = "all_reduce #" + std::to_string(sequence) + " [train.cpp:88]",
                   .communicator = 7,
                   .sequence = sequence,
                   .age = std::chrono::milliseconds(300 * i),
                   .reached = {{7, 80'000, sequence, std::chrono::milliseconds(300 * i)}}});
  }
  return all;
}

/// All beat once a second, in turn, and tell of their calls as often as agents of so many nodes do;
/// 0 entries: not at all.
void live_for(Crowd& crowd, pid_t daemon, Clock::duration time, int entries) {
  constexpr auto tick = std::chrono::milliseconds(10);
  const std::size_t size = crowd.agents().size();
  const auto part = [&](std::size_t turn, Clock::duration every, auto act) {
    const auto turns = static_cast<std::size_t>(every / tick);
    for (std::size_t i = turn % turns; i < size; i += turns) act(crowd.agents()[i]);
  };
  const auto before = cpu_time(daemon);
  const auto begin = Clock::now();
  std::size_t turn = 0;
  for (; Clock::now() < begin + time; ++turn) {
    part(turn, std::chrono::seconds(1), [](Agent& agent) { agent.beat(); });
    if (entries > 0) {
      part(turn, rendezvous::calls_told_every(static_cast<int>(size)),
           [&](Agent& agent) { agent.tell_calls(calls(turn, entries)); });
    }
    crowd.read_what_comes();
    std::this_thread::sleep_until(begin + tick * static_cast<int>(turn + 1));
  }
  const double seconds = static_cast<double>(turn) * 0.01;
  std::printf("all beat once a second, %d entries of calls: %.1f ms of CPU a second\n", entries,
              (cpu_time(daemon) - before).count() / seconds);
}

void print(const char* what, const std::vector<double>& took) {
  const auto at = [&](double share) {
    return took[static_cast<std::size_t>(share * static_cast<double>(took.size() - 1))];
  };
  std::printf("%s: %zu heartbeats, p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms, longest %.1f ms\n",
              what, took.size(), at(0.5), at(0.99), at(0.999), took.back());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) fail("readers DLAUNCHD N READERS [SECONDS]");
  const std::size_t size = std::strtoull(argv[2], nullptr, 10);
  const int readers = std::atoi(argv[3]);
  const auto time = std::chrono::seconds(argc > 4 ? std::atoi(argv[4]) : 3);
  allow_agents(size);
  const MeasuredDaemon daemon = start_daemon(argv[1]);
  Crowd crowd(daemon.rendezvous, size, 8);
  crowd.until(Agent::State::meeting, size);
  const auto all_beat = [&] {
    for (Agent& agent : crowd.agents()) agent.beat();
  };
  for (const int entries : {0, 1, 8}) live_for(crowd, daemon.pid, 4 * time, entries);
  all_beat();
  print("without readers", beat_for(crowd, time));
  all_beat();
  for (const std::string page : {"/metrics", "/api/v1/jobs", "/api/v1/jobs/bench"}) {
    std::atomic<bool> stop = false;
    std::vector<std::size_t> counts(static_cast<std::size_t>(readers));
    std::vector<std::jthread> threads;
    for (auto& count : counts) {
      threads.emplace_back([&] { count = read_pages(daemon.http, page, stop); });
    }
    const auto took = beat_for(crowd, time);
    stop = true;
    threads.clear();
    std::size_t all = 0;
    for (const auto count : counts) all += count;
    print((page + ", read " + std::to_string(all) + " times").c_str(), took);
    all_beat();
  }
  ::kill(daemon.pid, SIGKILL);
  ::waitpid(daemon.pid, nullptr, 0);
  return 0;
}
