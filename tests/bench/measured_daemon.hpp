#pragma once

#include "tests/bench/crowd.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include <sys/prctl.h>
#include <unistd.h>

namespace dlaunch::bench {

/// A dlaunchd in a process of its own, which ends with this one at the latest.
struct MeasuredDaemon {
  pid_t pid = 0;
  Address rendezvous, http;
};

inline Address address_in(const std::string& text, const std::string& key) {
  const auto at = text.find(key + "=127.0.0.1:");
  if (at == std::string::npos) fail("the daemon said " + text);
  const int port = std::atoi(text.c_str() + at + key.size() + 11);
  return resolve("127.0.0.1", static_cast<std::uint16_t>(port)).at(0);
}

/// With free ports and these options; returns once it is ready. What it says later is dropped.
inline MeasuredDaemon start_daemon(const char* program, const std::vector<char*>& options = {}) {
  int ends[2];
  if (::pipe(ends) != 0) fail("no pipe");
  std::string words[] = {program, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"};
  std::vector<char*> line;
  for (std::string& word : words) line.push_back(word.data());
  line.insert(line.end(), options.begin(), options.end());
  line.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid < 0) fail("cannot fork: " + errno_text(errno));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    ::dup2(ends[1], STDERR_FILENO);
    ::execv(program, line.data());
    std::_Exit(127);
  }
  ::close(ends[1]);  // Else a daemon that does not start would never be heard to end.
  std::string text;
  char c = 0;
  while (::read(ends[0], &c, 1) == 1 && c != '\n') text += c;
  std::thread([fd = ends[0]] {
    char some[4096];
    while (::read(fd, some, sizeof some) > 0) {
    }
  }).detach();
  return {pid, address_in(text, "listen"), address_in(text, "http")};
}

/// What a process has taken of the processors until now.
inline std::chrono::duration<double, std::milli> cpu_time(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) fail("clock");
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace dlaunch::bench
