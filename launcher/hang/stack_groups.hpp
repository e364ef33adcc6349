#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

/// The places of a job's ranks, told together: ranks with one stack once, and those first that do
/// not wait for the others. Pure.
namespace dlaunch::launcher {

/// A line of a stack: "load (/home/u/train.py:41)".
struct StackFrame {
  std::string function;  ///< "all_reduce"; of the kernel "futex_wait_queue, system call 202".
  std::string place;     ///< "/home/u/train.py:41", "libtorch_cpu.so"; may be empty.
  bool operator==(const StackFrame&) const = default;
};

/// The frames of the first thread, the innermost first, out of what py-spy, gdb or the kernel
/// tells.
std::vector<StackFrame> frames_of(std::string_view stack);

/// The frame of the program itself: of Python's the innermost one that is in no library. Null where
/// none is.
const StackFrame* own_frame(const std::vector<StackFrame>& frames);

/// One rank's stack.
struct RankStack {
  int rank = 0;
  pid_t pid = 0;
  std::string program;                  ///< "python3.11".
  std::string by;                       ///< "py-spy".
  std::vector<StackFrame> frames = {};  ///< None where it has ended.
  std::string source = {};              ///< The line at own_frame(), where it could be read.
};

/// Ranks whose stacks are alike.
struct StackGroup {
  std::vector<int> ranks;
  std::vector<pid_t> pids;
  std::string program, by;
  std::vector<StackFrame> frames;  ///< Their places without the folders of libraries and program.
  std::string doing;   ///< "in load, train.py:8: time.sleep(1000)", "in all_reduce, train.py:18".
  bool waits = false;  ///< For other ranks, as far as a stack tells.
};

/// Those that do not wait for others first, then the smaller groups.
std::vector<StackGroup> grouped(const std::vector<RankStack>& stacks);

/// "rank 2 is in load, train.py:8; ranks 0-1,3 wait in all_reduce, train.py:18".
std::string headline(const std::vector<StackGroup>& groups);

}  // namespace dlaunch::launcher
