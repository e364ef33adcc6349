#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace dlaunch::gpu_test {

struct CommandResult {
  int code = -1;  ///< 128 for one that a signal ended.
  bool timed_out = false;
  std::string output;  ///< The output of both streams.

  bool ok() const { return code == 0 && !timed_out; }
  int lines_with(std::string_view text) const;
};

/// Runs a line of the shell and shows what it writes as it comes, if it is to. A command that has
/// not ended after `limit` is asked to, and then killed.
CommandResult run_command(const std::string& line, std::chrono::seconds limit, bool shown = true);

}  // namespace dlaunch::gpu_test
