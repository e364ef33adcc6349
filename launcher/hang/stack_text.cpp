#include "launcher/hang/stack_text.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/base/text/values.hpp"

#include <vector>

namespace dlaunch::launcher {
namespace {

/// From the first line that begins with "Thread " on, without the lines of which `drops` holds.
template <class Drops>
std::optional<std::string> from_first_thread(std::string_view printed, Drops drops) {
  std::string stack;
  bool blank = false;
  for (const auto line : split(printed, '\n')) {
    if (stack.empty() && !line.starts_with("Thread ")) continue;
    if (drops(line)) continue;
    if (line.empty()) {
      blank = true;
      continue;
    }
    if (blank && line.starts_with("Thread ")) stack += "\n";
    blank = false;
    stack.append(line).append("\n");
  }
  if (stack.empty()) return std::nullopt;
  return stack;
}

}  // namespace

std::optional<std::string> stack_of_gdb(std::string_view printed) {
  return from_first_thread(printed, [](std::string_view line) {
    return line.starts_with("[Inferior ") || line.starts_with("warning: ");
  });
}

std::optional<std::string> stack_of_py_spy(std::string_view printed) {
  return from_first_thread(printed, [](std::string_view) { return false; });
}

std::string last_line(std::string_view printed) {
  std::string_view last;
  for (const auto line : split(printed, '\n')) {
    if (!line.empty()) last = line;
  }
  return clipped(last);
}

}  // namespace dlaunch::launcher
