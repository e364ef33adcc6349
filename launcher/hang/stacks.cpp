#include "launcher/hang/stacks.hpp"

#include "launcher/hang/stack_text.hpp"
#include "launcher/process/capture.hpp"
#include "launcher/process/program.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include <paths.h>

namespace dlaunch::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t stack_bytes_max = 1u << 20;
/// How many shells, each started by the one before, are followed.
constexpr int shells_max = 8;
constexpr std::size_t threads_max = 1024;

std::string proc(pid_t pid, const std::string& file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// A small file's text without its last end of line; empty where it cannot be read.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string program_of(pid_t pid) {
  std::error_code error;
  const auto path = fs::read_symlink(proc(pid, "exe"), error);
  return error ? text_of(proc(pid, "comm")) : path.filename().string();
}

bool is_shell(const std::string& program) {
  constexpr std::array<std::string_view, 5> shells = {"sh", "bash", "dash", "zsh", "busybox"};
  return std::find(shells.begin(), shells.end(), program) != shells.end();
}

/// The process that does a shell script's work.
pid_t below_shells(pid_t pid) {
  for (int i = 0; i < shells_max && is_shell(program_of(pid)); ++i) {
    const std::string task = "task/" + std::to_string(pid) + "/children";
    const std::string children = text_of(proc(pid, task));
    pid_t child = 0;
    const char* const end = children.data() + children.size();
    const auto read = std::from_chars(children.data(), end, child);
    // There is no child, or there are several, none of which stands for all.
    if (read.ec != std::errc() || std::find_if(read.ptr, end, ::isdigit) != end) break;
    pid = child;
  }
  return pid;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (fs::directory_iterator at(proc(pid, "task"), error), end;
       !error && at != end && threads.size() < threads_max; at.increment(error)) {
    const std::string name = at->path().filename().string();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    threads.push_back(thread);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

/// "in futex_wait_queue, system call 202"; what the kernel does not tell is left out.
std::string kernel_stack(pid_t pid) {
  std::string text;
  for (const pid_t thread : threads_of(pid)) {
    const std::string own = "task/" + std::to_string(thread) + "/";
    const auto stat = process_stat(thread);
    const std::string where = text_of(proc(pid, own + "wchan"));
    const std::string call = text_of(proc(pid, own + "syscall"));
    text += text.empty() ? "" : "\n";
    text += "Thread " + std::to_string(thread) + " (" + text_of(proc(pid, own + "comm")) + ")";
    if (stat) text += std::string(", state ") + stat->state;
    if (!where.empty() && where != "0") text += ", in " + where;
    if (!call.empty() && call != "running") {
      text += ", system call " + call.substr(0, call.find(' '));
    }
    text += "\n";
    if (const auto stack = text_of(proc(pid, own + "stack")); !stack.empty()) text += stack + "\n";
  }
  return text;
}

std::string find(const std::string& name, const std::string& path) {
  const auto found = find_program(name, path);
  return found.error == 0 ? found.path : "";
}

bool is_denied(std::string_view printed) {
  return printed.find("not permitted") != std::string_view::npos ||
         printed.find("Permission denied") != std::string_view::npos ||
         printed.find("Permission Denied") != std::string_view::npos;
}

/// A tool that is killed while it attaches may leave the process stopped.
void let_go_on(pid_t pid, bool was_stopped) {
  const auto stat = process_stat(pid);
  if (!was_stopped && stat && stat->state == 'T') ::kill(pid, SIGCONT);
}

}  // namespace

StackTools find_stack_tools() {
  const char* const set = std::getenv("PATH");
  const std::string path = set != nullptr ? set : _PATH_DEFPATH;
  return {.py_spy = find("py-spy", path), .gdb = find("gdb", path)};
}

ProcessStack read_stack(pid_t pid, const StackTools& tools, Clock::duration limit) {
  ProcessStack stack;
  stack.pid = below_shells(pid);
  stack.program = program_of(stack.pid);
  const auto before = process_stat(stack.pid);
  if (!before || before->state == 'Z') return stack;
  const bool was_stopped = before->state == 'T';
  const std::string number = std::to_string(stack.pid);
  std::string why;
  const auto ask = [&](const std::string& name, const std::vector<std::string>& line,
                       std::optional<std::string> (*read)(std::string_view)) {
    const Captured got =
        capture(line, {.patience = limit, .bytes_max = stack_bytes_max, .with_stderr = true});
    if (!got.in_time) let_go_on(stack.pid, was_stopped);
    auto text = read(got.output);
    if (got.in_time && text) {
      stack.by = name;
      stack.text = std::move(*text);
      return true;
    }
    stack.denied = stack.denied || is_denied(got.output);
    const std::string last = last_line(got.output);
    why += (why.empty() ? "" : "; ") + name +
           (!got.in_time   ? " did not end within " + duration_text(limit)
            : last.empty() ? std::string(" shows nothing")
                           : ": " + last);
    return false;
  };
  const bool python = stack.program.starts_with("python");
  if (python && tools.py_spy.empty()) why = "py-spy is not installed";
  if (python && !tools.py_spy.empty() &&
      ask("py-spy", {tools.py_spy, "dump", "--pid", number, "--full-filenames"}, stack_of_py_spy)) {
    return stack;
  }
  if (tools.gdb.empty()) {
    why += std::string(why.empty() ? "" : "; ") + "gdb is not installed";
  } else if (ask("gdb",
                 {tools.gdb, "-nx", "-batch", "-ex", "set pagination off", "-ex",
                  "set backtrace limit 100", "-ex", "thread apply all -ascending bt", "-p", number},
                 stack_of_gdb)) {
    if (!why.empty()) stack.by += " (" + why + ")";
    return stack;
  }
  stack.text = kernel_stack(stack.pid);
  stack.by = "the kernel (" + why + ")";
  stack.by_kernel = true;
  return stack;
}

}  // namespace dlaunch::launcher
