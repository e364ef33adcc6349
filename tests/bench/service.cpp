// How long N agents take to join one job at a dlaunchd, to pass a barrier of its store and to end,
// each with a connection of its own.
//
//     service DLAUNCHD N [WORKERS_PER_NODE [OPTION...]]
//
// The options are dlaunchd's.
#include "tests/bench/crowd.hpp"
#include "tests/bench/measured_daemon.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <sys/wait.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::bench;

std::size_t resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) fail("service DLAUNCHD N [WORKERS_PER_NODE [OPTION...]]");
  const std::size_t size = std::strtoull(argv[2], nullptr, 10);
  const int workers = argc > 3 ? std::atoi(argv[3]) : 8;
  std::vector<char*> options;
  for (int i = 4; i < argc; ++i) options.push_back(argv[i]);
  allow_agents(size);
  const MeasuredDaemon daemon = start_daemon(argv[1], options);

  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto begin = Clock::now();
  const auto lap = [&] { return Milliseconds(Clock::now() - begin).count(); };
  Crowd crowd(daemon.rendezvous, size, workers);
  crowd.until(Agent::State::joining, size);
  const double welcomed = lap();
  crowd.until(Agent::State::meeting, size);
  const double admitted = lap();
  for (Agent& agent : crowd.agents()) agent.meet();
  crowd.until(Agent::State::ending, size);
  const double met = lap();
  for (Agent& agent : crowd.agents()) agent.end();
  crowd.until(Agent::State::over, size);
  const double over = lap();

  std::printf(
      "%zu agents: welcomed after %.0f ms, admitted %.0f ms, through the barrier %.0f ms, over "
      "%.0f ms; dlaunchd: %.0f ms of CPU, %zu KiB\n",
      size, welcomed, admitted, met, over, cpu_time(daemon.pid).count(), resident_kib(daemon.pid));
  for (Agent& agent : crowd.agents()) agent.hang_up();
  ::kill(daemon.pid, SIGTERM);
  int status = 0;
  if (::waitpid(daemon.pid, &status, 0) != daemon.pid || status != 0) fail("dlaunchd has failed");
  return 0;
}
