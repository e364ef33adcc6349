#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

/// A program under test, started with an environment of its own and read to its end. Killed and
/// reaped when it goes out of scope.
class Process {
 public:
  Process(const std::vector<std::string>& command,
          const std::map<std::string, std::string>& environment);
  Process(Process&&) noexcept;
  Process& operator=(Process&&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }  ///< Also after it has ended.
  void close_stdin() { input_.reset(); }
  /// Its output on stdout and stderr up to and with `text`; fails the test after 30 s.
  const std::string& read_until(const std::string& text);
  /// Reads to the end and reaps; the exit code, or 128 + signal.
  int wait();
  const std::string& output() const { return output_; }

 private:
  bool read_some();

  pid_t pid_ = -1;
  bool reaped_ = false;
  dlaunch::unique_fd input_, pipe_;
  std::string output_;
};
