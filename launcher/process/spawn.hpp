#pragma once

#include <dlaunch/error.hpp>

#include <array>
#include <csignal>
#include <cstddef>

#include <sched.h>
#include <sys/resource.h>
#include <sys/types.h>

namespace dlaunch::launcher {

/// One process to start. Everything is borrowed until spawn returns.
struct SpawnRequest {
  const char* path = nullptr;      ///< As find_program gave it: PATH is not searched again.
  char* const* argv = nullptr;     ///< Null-terminated.
  char* const* environ = nullptr;  ///< Null-terminated.
  /// These become descriptors 0, 1 and 2; -1 keeps ours.
  int stdio[3] = {-1, -1, -1};
  /// A descriptor of ours, and the number under which it is inherited, which nothing else of ours
  /// may use; -1: none.
  struct Inherited {
    int ours = -1;
    int number = -1;
  };
  Inherited control;
  Inherited pmi;
  bool foreground = false;          ///< The process group gets the terminal that is descriptor 0.
  sigset_t mask{};                  ///< The signals the program starts with blocked.
  bool ignore_children = false;     ///< The program starts with SIGCHLD ignored.
  const char* directory = nullptr;  ///< Where the program runs; null: where we do.
  /// The cores the program may use, `cores_bytes` of a mask; null keeps ours.
  const cpu_set_t* cores = nullptr;
  std::size_t cores_bytes = 0;
  /// The limit on descriptors the program starts with; null keeps ours.
  const rlimit* descriptors = nullptr;
  /// The directory of the cgroup (v2) that the process is born into; -1: ours. Where the kernel
  /// does not allow it the process is born into ours.
  int cgroup = -1;
  /// The calling thread keeps to its core meanwhile: see StartTrial.
  bool keeps_core = true;
};

struct SpawnResult {
  pid_t pid = -1;
  int error = 0;  ///< errno of what failed, exec included; then there is no process.
};

/// Finds out whether a thread that starts many processes should keep to its core meanwhile. The
/// parent sleeps while a new child prepares its exec. On busy processors a child that is born on
/// another core waits for that core, and starting takes up to half as long again; on idle ones a
/// child that is born on its parent's core is in the parent's way, which costs as much. So a few
/// starts are made each way, the way for idle processors first, and then many in the faster way.
/// Pure, reads no clock.
class StartTrial {
 public:
  /// Whether the next start is made on this core.
  bool keeps_core() const noexcept;
  /// The last start took so long, with all that belongs to it.
  void took(Clock::duration time) noexcept;

  static constexpr std::size_t tries = 4, cycle = 64;

 private:
  /// The starts in one way; the longest does not count, since something else may have held it up.
  struct Times {
    Clock::duration sum{}, longest{};
    Clock::duration without_longest() const noexcept { return sum - longest; }
  };

  std::size_t starts_ = 0;  ///< In this cycle.
  std::array<Times, 2> times_{};
};

/// Starts a process in a process group of its own that dies with the calling thread. The program
/// ignores the signals that this process ignores. Returns when the new program runs or has failed
/// to start. The calling thread must have all signals blocked that are not ignored.
SpawnResult spawn(const SpawnRequest& request);

}  // namespace dlaunch::launcher
