#include "launcher/hang/hang_report.hpp"

#include "launcher/hang/awaited_keys.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/values.hpp"

#include <algorithm>
#include <cstddef>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t shown_frames_max = 8;
constexpr std::size_t dumps_max = 8;
constexpr std::size_t ras_lines_max = 60;

std::string text_of(const StackGroup& group) {
  std::string text = ranks_text(group.ranks) + " (pid" + (group.pids.size() > 1 ? "s " : " ");
  text += joined(group.pids, [](pid_t pid) { return std::to_string(pid); });
  if (group.frames.empty()) {
    return text + (group.ranks.size() > 1 ? ") have ended\n" : ") has ended\n");
  }
  text += ", " + group.program + "), by " + group.by + ":\n";
  for (std::size_t i = 0; i < std::min(group.frames.size(), shown_frames_max); ++i) {
    const auto& frame = group.frames[i];
    text += "    " + frame.function + (frame.place.empty() ? "" : " (" + frame.place + ")") + "\n";
  }
  if (group.frames.size() > shown_frames_max) {
    const auto more = static_cast<long>(group.frames.size() - shown_frames_max);
    text += "    ... " + plural(more, "more frame") + "\n";
  }
  return text;
}

std::string store_text(const JobStoreWaits& store, const std::vector<StackGroup>& groups) {
  if (store.elsewhere) {
    const bool python = std::ranges::any_of(
        groups, [](const StackGroup& group) { return group.program.starts_with("python"); });
    if (!python) return "";
    return "\nPyTorch's store is at node rank 0; dlaunch stack there tells which keys are "
           "awaited\n";
  }
  const std::string awaited = awaited_text(store);
  return awaited.empty() ? "" : "\nkeys that are awaited in PyTorch's store:\n" + awaited;
}

std::string dumps_text(const std::vector<FlightDump>& dumps) {
  if (dumps.empty()) return "";
  std::string text = "\nPyTorch's flight recorder was dumped (torchfrtrace reads it):\n";
  for (std::size_t i = 0; i < std::min(dumps.size(), dumps_max); ++i) {
    const auto& dump = dumps[i];
    text += "  rank " + std::to_string(dump.rank) + ": " + dump.file + ", " + age_text(dump.age) +
            " ago" + (dump.last_open.empty() ? "" : "; its last open call: " + dump.last_open) +
            "\n";
  }
  if (dumps.size() > dumps_max) {
    text += "  and " + std::to_string(dumps.size() - dumps_max) + " more\n";
  }
  return text;
}

std::string ras_text(const std::string& address, const RasAnswer& answer) {
  std::string text = "\nNCCL's RAS at " + address + " says:\n";
  std::size_t lines = 0;
  for (const auto line : split(answer.text, '\n')) {
    if (line.empty()) continue;
    if (++lines > ras_lines_max) continue;
    text.append("  ").append(line).append("\n");
  }
  if (lines > ras_lines_max)
    text += "  ... " + plural(static_cast<long>(lines - ras_lines_max), "more line") + "\n";
  if (!answer.problem.empty()) text += "  (" + answer.problem + ")\n";
  return text;
}

}  // namespace

std::string to_text(const HangReport& report, bool stacks) {
  std::string text = headline(report.groups) + "\n";
  if (stacks) {
    for (const auto& group : report.groups) text += "\n" + text_of(group);
  }
  if (report.store) text += store_text(*report.store, report.groups);
  text += dumps_text(report.dumps);
  for (const auto& [address, answer] : report.ras) text += ras_text(address, answer);
  return text;
}

}  // namespace dlaunch::launcher
