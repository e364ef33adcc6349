#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace dlaunch::process_test {

/// A program in the foreground of a pseudo terminal of its own, as a shell would start it. Killed
/// when it goes out of scope.
class Terminal {
 public:
  explicit Terminal(std::vector<std::string> command);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  pid_t pid() const { return pid_; }
  void type(std::string_view keys);
  /// Reads until the screen has this text; false at the deadline or at the end.
  bool saw(std::string_view text);
  /// The next change of the program's state, as waitpid tells it with WUNTRACED; -1 at the
  /// deadline.
  int next_status();
  /// The process group that the terminal's keys go to.
  pid_t foreground() const;
  /// Waits until they go to this group, or to another; false at the deadline.
  bool is_foreground(pid_t group) const;
  bool is_background(pid_t group) const;
  /// Typed text is shown.
  bool echoes() const;
  const std::string& screen() const { return screen_; }

 private:
  pid_t pid_ = -1;
  unique_fd master_;
  std::string screen_;
};

}  // namespace dlaunch::process_test
