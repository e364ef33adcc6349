#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace dlaunch {

/// How a forked child ended.
struct ChildEnd {
  int rank = 0;
  pid_t pid = -1;
  int exit_code = -1;        ///< -1 if a signal ended it.
  int signal = 0;            ///< 0 if it exited.
  std::optional<Errc> errc;  ///< The code of the dlaunch::Error that ended it.
  std::string text;          ///< The text of the exception that ended it.
  bool is_failure() const { return exit_code != 0; }
  std::string cause() const;  ///< "exited with 3", "killed by SIGSEGV", "failed: text".
};

/// Forked copies of this process, each in a process group of its own and killed with its parent.
/// Children that still live when this is destroyed are killed, group by group, and reaped. For one
/// thread.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children();

  /// Forks; the child runs `program` and ends with its result, or with 1 after an exception, whose
  /// text the parent finds in ChildEnd. Nothing of the parent's is destroyed in the child.
  void start(int rank, const std::function<int()>& program);
  /// Waits until at least one has ended or the deadline passed; what it left in its process group
  /// is killed.
  std::vector<ChildEnd> wait(Clock::time_point deadline);
  void signal_all(int signal);
  bool empty() const { return living_.empty(); }

 private:
  struct Child {
    int rank = 0;
    pid_t pid = -1;
    unique_fd pidfd;   ///< Empty where the kernel or a sandbox has none.
    unique_fd report;  ///< The read end of the pipe with the exception's text.
  };
  static std::optional<ChildEnd> reap(Child& child, bool block);

  std::vector<Child> living_;
};

}  // namespace dlaunch
