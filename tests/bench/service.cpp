// How long N agents take to join one job at a rendezvous service, to pass a barrier of its store
// and to end, each with a connection of its own; the service is a process apart.
//
//     service N [WORKERS_PER_NODE]
#include "rendezvous/service/service.hpp"

#include "tests/bench/crowd.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::bench;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

[[noreturn]] void serve(unique_fd listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  boost::asio::io_context io(1);
  rendezvous::Service service(io, {}, [](const rendezvous::LogLine& line) {
    if (line.level != rendezvous::LogLine::Level::info) {
      std::fprintf(stderr, "%s: %s\n", line.job.c_str(), line.sentence.c_str());
    }
  });
  service.listen(std::move(listener));
  boost::asio::signal_set signals(io, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) {
    service.stop();
    io.stop();
  });
  io.run();
  std::exit(0);
}

std::size_t resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) fail("how many agents?");
  const std::size_t size = std::strtoull(argv[1], nullptr, 10);
  const int workers = argc > 2 ? std::atoi(argv[2]) : 8;
  allow_agents(size);

  unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address service = local_address(listener.get());
  const pid_t server = ::fork();
  if (server < 0) fail("cannot fork: " + errno_text(errno));
  if (server == 0) serve(std::move(listener));
  listener.reset();

  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto begin = Clock::now();
  const auto lap = [&] { return Milliseconds(Clock::now() - begin).count(); };
  Crowd crowd(service, size, workers);
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

  const std::size_t resident = resident_kib(server);
  ::kill(server, SIGTERM);
  rusage usage{};
  int status = 0;
  if (::wait4(server, &status, 0, &usage) != server || status != 0) fail("the service has failed");
  std::printf(
      "%zu agents: welcomed after %.0f ms, admitted %.0f ms, through the barrier %.0f ms, over "
      "%.0f "
      "ms; service: %.0f ms of CPU, %zu KiB\n",
      size, welcomed, admitted, met, over,
      1000 * (seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)), resident);
  return 0;
}
