#include "launcher/machine/core_file.hpp"

#include "runtime/base/phrases.hpp"

#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include <glob.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace dlaunch::launcher {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// A character that stands for itself in a pattern of glob(7).
void append_plain(std::string& out, char c) {
  if (c == '*' || c == '?' || c == '[' || c == '\\') out += '\\';
  out += c;
}

WallClock::time_point time_of(const timespec& time) {
  return WallClock::time_point(std::chrono::duration_cast<WallClock::duration>(
      std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec)));
}

/// "systemd-coredump" of "|/usr/lib/systemd/systemd-coredump %P %u".
std::string taker_of(const CoreRule& rule) {
  const auto begin = rule.pattern.find_first_not_of("| ");
  if (begin == std::string::npos) return "a program";
  const std::string program = rule.pattern.substr(begin, rule.pattern.find(' ', begin) - begin);
  return program.substr(program.rfind('/') + 1);
}

}  // namespace

CoreRule read_core_rule() {
  CoreRule rule;
  rule.pattern = first_line("/proc/sys/kernel/core_pattern");
  const auto uses_pid = first_line("/proc/sys/kernel/core_uses_pid");
  rule.appends_pid = !uses_pid.empty() && uses_pid != "0";
  rlimit limit{};
  rule.limit_is_zero = ::getrlimit(RLIMIT_CORE, &limit) == 0 && limit.rlim_cur == 0;
  std::error_code gone;
  rule.working_directory = std::filesystem::current_path(gone).string();
  return rule;
}

std::string core_files_of(const CoreRule& rule, pid_t pid, int signal) {
  const std::string_view pattern = rule.pattern;
  if (pattern.empty() || pattern.front() == '|') return {};
  std::string files;
  if (pattern.front() != '/') {
    for (const char c : rule.working_directory) append_plain(files, c);
    files += '/';
  }
  bool has_pid = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      append_plain(files, pattern[i]);
      continue;
    }
    if (++i == pattern.size()) break;
    switch (pattern[i]) {
      case '%':
        files += '%';
        break;
      case 'p':
        files += std::to_string(pid);
        has_pid = true;
        break;
      case 's':
        files += std::to_string(signal);
        break;
      default:
        files += '*';
    }
  }
  if (rule.appends_pid && !has_pid) files += "." + std::to_string(pid);
  return files;
}

std::string find_core_file(const CoreRule& rule, pid_t pid, int signal,
                           WallClock::time_point since) {
  const std::string files = core_files_of(rule, pid, signal);
  if (files.empty()) return {};
  glob_t found{};
  std::string newest;
  WallClock::time_point newest_at = since;
  if (::glob(files.c_str(), GLOB_NOSORT, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat file {};
      if (::stat(found.gl_pathv[i], &file) != 0 || !S_ISREG(file.st_mode)) continue;
      const auto at = time_of(file.st_mtim);
      if (at < newest_at) continue;
      newest = found.gl_pathv[i];
      newest_at = at;
    }
  }
  ::globfree(&found);
  return newest;
}

std::string core_note(const CoreRule& rule, pid_t pid, bool core_dumped) {
  const bool piped = rule.pattern.starts_with("|");
  if (core_dumped && piped) {
    const std::string taker = taker_of(rule);
    const std::string look =
        taker == "systemd-coredump" ? ": coredumpctl debug " + std::to_string(pid) : "";
    return "taken by " + taker + look;
  }
  if (core_dumped) {
    return "written by the pattern " + in_quotes(rule.pattern) +
           " (/proc/sys/kernel/core_pattern), in the directory where the rank was";
  }
  // A program gets the core whatever the limit is.
  if (!piped && rule.limit_is_zero) return "none, for its size limit is 0 (ulimit -c unlimited)";
  return {};
}

bool dumps_core(int signal) {
  constexpr std::array dumping = {SIGSEGV, SIGABRT, SIGBUS,  SIGFPE, SIGILL,
                                  SIGSYS,  SIGTRAP, SIGXCPU, SIGXFSZ};
  for (const int one : dumping) {
    if (one == signal) return true;
  }
  return false;
}

}  // namespace dlaunch::launcher
