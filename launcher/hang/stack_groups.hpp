#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

/// Groups a job's ranks by their stacks: ranks with equal stacks are one group, and groups that do
/// not wait for others come first. Pure.
namespace dlaunch::launcher {

/// A line of a stack: "load (/home/u/train.py:41)".
struct StackFrame {
  std::string function;  ///< "all_reduce"; of the kernel "futex_wait_queue, system call 202".
  std::string place;     ///< "/home/u/train.py:41", "libtorch_cpu.so"; may be empty.
  bool operator==(const StackFrame&) const = default;
};

/// The frames of the first thread, the innermost first, from the output of py-spy, gdb or the
/// kernel.
std::vector<StackFrame> frames_of(std::string_view stack);

/// The frame of the program itself: in Python, the innermost frame that is in no library. Null
/// where there is none.
const StackFrame* own_frame(const std::vector<StackFrame>& frames);

/// One rank's stack.
struct RankStack {
  int rank = 0;
  pid_t pid = 0;
  std::string program;                  ///< "python3.11".
  std::string by;                       ///< "py-spy".
  std::vector<StackFrame> frames = {};  ///< Empty if the process has ended.
  /// The source line at own_frame(); empty if it could not be read.
  std::string source = {};
};

/// Ranks whose stacks are alike.
struct StackGroup {
  std::vector<int> ranks;
  std::vector<pid_t> pids;
  std::string program, by;
  /// Frames whose places lack the folders of libraries and program.
  std::vector<StackFrame> frames;
  std::string doing;   ///< "in load, train.py:8: time.sleep(1000)", "in all_reduce, train.py:18".
  bool waits = false;  ///< Whether they wait for other ranks, as far as a stack shows.
};

/// Orders groups: those that do not wait for others first, then smaller before larger ones.
std::vector<StackGroup> grouped(const std::vector<RankStack>& stacks);

/// "rank 2 is in load, train.py:8; ranks 0-1,3 wait in all_reduce, train.py:18".
std::string headline(const std::vector<StackGroup>& groups);

}  // namespace dlaunch::launcher
