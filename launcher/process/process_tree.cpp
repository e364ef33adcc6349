#include "launcher/process/process_tree.hpp"

#include "runtime/base/os/directory.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

namespace dlaunch::launcher {
namespace {

std::string read_file(const std::string& path) {
  const unique_fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 4096> block;
  while (file) {
    const auto size = ::read(file.get(), block.data(), block.size());
    if (size <= 0) break;
    text.append(block.data(), static_cast<std::size_t>(size));
  }
  return text;
}

template <class Visit>
bool for_each_entry(const char* folder, Visit visit) {
  const Directory directory(::opendir(folder));
  if (!directory) return false;
  while (const dirent* entry = ::readdir(directory.get())) {
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9') visit(std::string(entry->d_name));
  }
  return true;
}

void append_numbers(std::string_view text, std::vector<pid_t>& out) {
  while (!text.empty()) {
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
    if (error == std::errc()) out.push_back(pid);
    const auto parsed = static_cast<std::size_t>(end - text.data());
    text.remove_prefix(std::min(text.size(), parsed + 1));
  }
}

/// The parent in /proc/PID/stat: the second field after the name's closing parenthesis.
pid_t parent_of(const std::string& stat) {
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 4 >= stat.size()) return 0;
  pid_t parent = 0;
  std::from_chars(stat.data() + name_end + 4, stat.data() + stat.size(), parent);
  return parent;
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  // Reads /proc's list of children, where the kernel has it; else asks every process for its
  // parent.
  bool listed = false;
  const std::string tasks = "/proc/" + std::to_string(parent) + "/task";
  for_each_entry(tasks.c_str(), [&](const std::string& thread) {
    const std::string path = tasks + "/" + thread + "/children";
    if (::access(path.c_str(), R_OK) != 0) return;
    listed = true;
    append_numbers(read_file(path), children);
  });
  if (listed) return children;
  for_each_entry("/proc", [&](const std::string& pid) {
    if (parent_of(read_file("/proc/" + pid + "/stat")) == parent) append_numbers(pid, children);
  });
  return children;
}

}  // namespace

std::vector<pid_t> child_processes() {
  // Most often there is no child, which waitid() says at once; /proc takes ten times as long.
  siginfo_t ended{};
  const bool childless =
      ::waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD;
  return childless ? std::vector<pid_t>{} : children_of(::getpid());
}

std::vector<pid_t> catchers_below(pid_t pid, int signal_number) {
  if (is_in_signal_mask(pid, "SigCgt", signal_number)) return {pid};
  std::vector<pid_t> catchers;
  for (const pid_t child : children_of(pid)) {
    const auto below = catchers_below(child, signal_number);
    catchers.insert(catchers.end(), below.begin(), below.end());
  }
  return catchers;
}

std::chrono::milliseconds cpu_time_below(pid_t pid) {
  const auto stat = process_stat(pid);
  if (!stat) return {};
  auto time = stat->cpu_time;
  for (const pid_t child : children_of(pid)) time += cpu_time_below(child);
  return time;
}

std::vector<pid_t> processes_connected_to(std::uint16_t port) {
  const auto sockets = connections_to(port);
  std::vector<pid_t> processes;
  if (sockets.empty()) return processes;
  for_each_entry("/proc", [&](const std::string& pid) {
    const std::string folder = "/proc/" + pid + "/fd/";
    bool connected = false;
    for_each_entry(folder.c_str(), [&](const std::string& fd) {
      std::array<char, 64> target{};
      const auto size = ::readlink((folder + fd).c_str(), target.data(), target.size());
      connected |= size > 0 && std::ranges::count(
                                   sockets, std::string_view(target.data(),
                                                             static_cast<std::size_t>(size))) > 0;
    });
    if (connected) append_numbers(pid, processes);
  });
  return processes;
}

std::vector<Hanging> hanging_among(const std::vector<pid_t>& processes) {
  std::vector<Hanging> found;
  for (const pid_t pid : processes) {
    const auto stat = process_stat(pid);
    if (!stat) continue;
    const std::string folder = "/proc/" + std::to_string(pid);
    Hanging one{pid, read_file(folder + "/comm"), stat->state, read_file(folder + "/wchan")};
    while (one.command.ends_with('\n')) one.command.pop_back();
    if (one.wchan == "0") one.wchan.clear();
    found.push_back(std::move(one));
  }
  return found;
}

std::string hanging_text(const std::vector<Hanging>& processes) {
  constexpr std::size_t named_max = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(processes.size(), named_max); ++i) {
    const Hanging& one = processes[i];
    text += (text.empty() ? "pid " : "; pid ") + std::to_string(one.pid) + " (" + one.command +
            "), state " + one.state;
    if (!one.wchan.empty()) text += ", waits in " + one.wchan;
  }
  if (processes.size() > named_max) {
    text += ", and " + std::to_string(processes.size() - named_max) + " more";
  }
  return text;
}

void become_subreaper() {
  // Only kernels before 3.4 refuse it.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

}  // namespace dlaunch::launcher
