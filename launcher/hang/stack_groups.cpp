#include "launcher/hang/stack_groups.hpp"

#include "runtime/base/phrases.hpp"
#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <tuple>
#include <utility>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t frames_max = 100;
/// How many frames are searched for one that waits: it is near the innermost.
constexpr std::size_t searched_max = 16;
constexpr std::size_t told_groups_max = 4;
constexpr std::size_t source_max = 60;

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

bool holds(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

/// "    load (train.py:8)".
StackFrame frame_of_py_spy(std::string_view line) {
  line = trimmed(line);
  const auto open = line.rfind(" (");
  if (open == std::string_view::npos || !line.ends_with(')')) return {std::string(line), ""};
  return {std::string(line.substr(0, open)),
          std::string(line.substr(open + 2, line.size() - open - 3))};
}

/// The place of the parenthesis before a function's arguments, past any "(anonymous namespace)".
std::size_t arguments_at(std::string_view text) {
  constexpr std::string_view nameless = "(anonymous namespace)";
  std::size_t at = text.find('(');
  while (at != std::string_view::npos && text.substr(at).starts_with(nameless)) {
    at = text.find('(', at + nameless.size());
  }
  return std::min(at, text.size());
}

/// "#6  0x00007f in c10d::Work::wait(...) () from /lib/libtorch_cpu.so", "#1  main () at a.c:50".
StackFrame frame_of_gdb(std::string_view line) {
  line.remove_prefix(std::min(line.find(' '), line.size()));
  line = trimmed(line);
  if (const auto in = line.find(" in "); line.starts_with("0x") && in != std::string_view::npos) {
    line.remove_prefix(in + 4);
  }
  StackFrame frame;
  frame.function = trimmed(line.substr(0, arguments_at(line)));
  if (const auto at = line.rfind(") at "); at != std::string_view::npos) {
    frame.place = line.substr(at + 5);
  } else if (const auto from = line.rfind(") from "); from != std::string_view::npos) {
    frame.place = line.substr(from + 7);
  }
  const auto slash = frame.place.rfind('/');
  if (slash != std::string::npos) frame.place.erase(0, slash + 1);
  return frame;
}

/// "Thread 12 (train), state S, in futex_wait_queue, system call 202".
StackFrame frame_of_kernel(std::string_view line) {
  const auto at = line.find("), state ");
  if (at == std::string_view::npos) return {};
  line.remove_prefix(at + 3);
  constexpr std::string_view in = ", in ", call = ", system call ";
  const auto place = std::min(line.find(in), line.find(call));
  if (place == std::string_view::npos) return {std::string(line), ""};
  line.remove_prefix(place + 2);
  if (line.starts_with("in ")) line.remove_prefix(3);
  return {std::string(line), ""};
}

bool is_pythons(const StackFrame& frame) {
  return holds(frame.place, ".py:") || frame.place.starts_with("<frozen");
}

/// The folders of Python's own files and of packages.
constexpr std::array<std::string_view, 3> library_folders = {"/site-packages/", "/dist-packages/",
                                                             "/lib/python3"};

bool is_of_library(const StackFrame& frame) {
  if (frame.place.starts_with('<')) return true;
  return std::ranges::any_of(library_folders,
                             [&](std::string_view folder) { return holds(frame.place, folder); });
}

/// "torch/distributed/c10d_logger.py:83", "threading.py:320": without the folder of libraries, or
/// of the program.
std::string short_place(const std::string& place, std::string_view programs_folder) {
  for (const auto folder : library_folders) {
    const auto at = place.rfind(folder);
    if (at == place.npos) continue;
    const auto end =
        folder.ends_with('/') ? at + folder.size() : place.find('/', at + folder.size());
    return end == place.npos ? place : place.substr(folder.ends_with('/') ? end : end + 1);
  }
  if (!programs_folder.empty() && place.starts_with(programs_folder)) {
    return place.substr(programs_folder.size());
  }
  return place;
}

/// The folder of the file with which Python has begun, with its slash.
std::string programs_folder(const std::vector<StackFrame>& frames) {
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
    if (is_pythons(*frame) && !is_of_library(*frame)) {
      return frame->place.substr(0, frame->place.rfind('/') + 1);
    }
  }
  return "";
}

std::vector<StackFrame> shortened(std::vector<StackFrame> frames) {
  const std::string folder = programs_folder(frames);
  for (auto& frame : frames) frame.place = short_place(frame.place, folder);
  return frames;
}

/// "wrapper" of "_exception_logger.<locals>.wrapper".
std::string_view last_name(std::string_view function) {
  const auto dot = function.rfind('.');
  return dot == std::string_view::npos ? function : function.substr(dot + 1);
}

bool is_wrapper(const StackFrame& frame) {
  const auto name = last_name(frame.function);
  return name == "wrapper" || name == "_fn" || name == "inner" || name == "decorate_context";
}

/// The frame that the program's own frame has called, past decorators and other wrappers; null:
/// none.
const StackFrame* called_by(const std::vector<StackFrame>& frames, const StackFrame* own) {
  for (const StackFrame* at = own; at != frames.data();) {
    --at;
    if (!is_wrapper(*at)) return at;
  }
  return nullptr;
}

/// A function in which a rank waits for others, by its name.
bool is_exchange(const StackFrame& frame) {
  // What is on a device's stream may be a call of NCCL that waits for other ranks.
  constexpr std::array<std::string_view, 10> parts = {
      "c10d::",         "gloo::",          "ncclGroup",         "MPI_",
      "PMPI_",          "dlaunch::",       "StreamSynchronize", "DeviceSynchronize",
      "CtxSynchronize", "EventSynchronize"};
  return std::ranges::any_of(parts, [&](auto part) { return holds(frame.function, part); });
}

/// PyTorch's torch.cuda.synchronize(), Stream.synchronize() and Event.synchronize().
bool waits_for_device(const StackFrame& frame) {
  return holds(frame.place, "/torch/cuda/") && last_name(frame.function) == "synchronize";
}

std::string without_prefix(std::string_view function) {
  if (function.starts_with("__GI_")) function.remove_prefix(5);
  while (function.starts_with('_')) function.remove_prefix(1);
  return std::string(function);
}

void describe_python(StackGroup& group, const StackFrame& own, const std::string& source) {
  const StackFrame* const called = called_by(group.frames, &own);
  const bool imports = called != nullptr && called->place.starts_with("<frozen importlib");
  group.waits = called != nullptr &&
                (holds(called->place, "/torch/distributed/") || waits_for_device(*called));
  const StackFrame& named = called != nullptr ? *called : own;
  const std::string place = short_place(own.place, programs_folder(group.frames));
  group.doing =
      imports ? "at " + place : "in " + std::string(last_name(named.function)) + ", " + place;
  if ((called == nullptr || imports) && !source.empty()) {
    group.doing += ": " + source.substr(0, source_max);
    if (source.size() > source_max) group.doing += "...";
  }
}

void describe(StackGroup& group, const std::string& source) {
  if (group.frames.empty()) {
    group.doing = "ended";
    return;
  }
  if (const StackFrame* const own = own_frame(group.frames)) {
    return describe_python(group, *own, source);
  }
  const auto searched = std::min(group.frames.size(), searched_max);
  const auto end = group.frames.begin() + static_cast<std::ptrdiff_t>(searched);
  const auto exchange = std::find_if(group.frames.begin(), end, is_exchange);
  group.waits = exchange != end;
  const StackFrame& named = group.waits ? *exchange : group.frames.front();
  group.doing = "in " + without_prefix(named.function);
}

}  // namespace

std::vector<StackFrame> frames_of(std::string_view stack) {
  std::vector<StackFrame> frames;
  bool first = true;
  for (const auto line : split(stack, '\n')) {
    if (line.empty() || frames.size() >= frames_max) break;
    if (std::exchange(first, false)) {
      if (auto frame = frame_of_kernel(line); !frame.function.empty()) {
        frames.push_back(std::move(frame));
      }
    } else if (line.starts_with("    ")) {
      frames.push_back(frame_of_py_spy(line));
    } else if (line.starts_with('#')) {
      frames.push_back(frame_of_gdb(line));
    }
  }
  return frames;
}

const StackFrame* own_frame(const std::vector<StackFrame>& frames) {
  for (const auto& frame : frames) {
    if (is_pythons(frame) && !is_of_library(frame)) return &frame;
  }
  return nullptr;
}

std::vector<StackGroup> grouped(const std::vector<RankStack>& stacks) {
  std::vector<StackGroup> groups;
  for (const auto& stack : stacks) {
    auto same = std::ranges::find_if(groups, [&](const StackGroup& group) {
      return group.frames == stack.frames && group.program == stack.program;
    });
    if (same == groups.end()) {
      StackGroup group{.ranks = {},
                       .pids = {},
                       .program = stack.program,
                       .by = stack.by,
                       .frames = stack.frames,
                       .doing = {}};
      describe(group, stack.source);
      same = groups.insert(groups.end(), std::move(group));
    }
    same->ranks.push_back(stack.rank);
    same->pids.push_back(stack.pid);
  }
  for (auto& group : groups) group.frames = shortened(std::move(group.frames));
  std::ranges::stable_sort(groups, [](const StackGroup& a, const StackGroup& b) {
    return std::tuple(a.waits, a.ranks.size(), a.ranks.front()) <
           std::tuple(b.waits, b.ranks.size(), b.ranks.front());
  });
  return groups;
}

std::string headline(const std::vector<StackGroup>& groups) {
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const StackGroup& group = groups[i];
    if (i >= told_groups_max) {
      return text + "; and " + plural(static_cast<long>(groups.size() - i), "more group");
    }
    const bool one = group.ranks.size() == 1;
    text += (text.empty() ? "" : "; ") + ranks_text(group.ranks) + " ";
    if (group.frames.empty()) {
      text += one ? "has ended" : "have ended";
      continue;
    }
    text += group.waits ? (one ? "waits " : "wait ") : (one ? "is " : "are ");
    text += group.doing;
  }
  return text;
}

}  // namespace dlaunch::launcher
