#include "runtime/base/phrases.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>

namespace dlaunch {

std::string name_in_quotes(std::string_view name) {
  constexpr std::size_t shown = 64;
  return "'" + std::string(name.substr(0, shown)) + (name.size() > shown ? "...'" : "'");
}

std::string clipped(std::string_view text) {
  constexpr std::size_t shown = 80;
  return std::string(text.substr(0, shown)) + (text.size() > shown ? "..." : "");
}

std::string host_port(const std::string& host, int port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string site_text(std::string_view file, int line) {
  if (file.empty() || file.ends_with("dlaunch/options.hpp")) return "";
  return std::string(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(line);
}

std::string plural(long number, std::string_view what) {
  return (std::to_string(number) + " ").append(what) + (number == 1 ? "" : "s");
}

std::string number_ranges(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t first = 0; first < numbers.size();) {
    std::size_t last = first;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[first]);
    if (last > first) text += "-" + std::to_string(numbers[last]);
    first = last + 1;
  }
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + number_ranges(ranks);
}

std::string ranks_text(int first, int count) {
  if (count == 1) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + "-" + std::to_string(first + count - 1);
}

std::string signal_name(int number) {
  if (const char* name = ::sigabbrev_np(number)) return std::string("SIG") + name;
  if (number >= SIGRTMIN && number <= SIGRTMAX) {
    return number == SIGRTMIN ? "SIGRTMIN" : "SIGRTMIN+" + std::to_string(number - SIGRTMIN);
  }
  return "signal " + std::to_string(number);
}

std::string end_text(int code, int signal, bool core_dumped) {
  if (signal == 0) return "exited with " + std::to_string(code);
  return "killed by " + signal_name(signal) + (core_dumped ? " (core dumped)" : "");
}

std::string duration_text(Clock::duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  return ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
}

std::string seconds_text(Clock::duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", std::chrono::duration<double>(duration).count());
  return text;
}

std::string age_text(Clock::duration age) {
  const double seconds = std::chrono::duration<double>(age).count();
  char text[32];
  if (seconds < 0.0995) {
    std::snprintf(text, sizeof text, "%.0f ms", std::max(seconds, 0.0) * 1000);
  } else if (seconds < 9.95) {
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  } else if (seconds < 600) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else if (seconds < 7200) {
    std::snprintf(text, sizeof text, "%.0f min", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.0f h", seconds / 3600);
  }
  return text;
}

}  // namespace dlaunch
