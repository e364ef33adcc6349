#include "launcher/report/summary.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <csignal>
#include <map>

namespace dlaunch::launcher {

namespace {

constexpr std::size_t width = 80;
/// Failures beside the root cause that are told one by one; the others are listed by rank.
constexpr std::size_t others_told_max = 8;
/// Their last lines: a hint. The root cause's are shown in full.
constexpr std::size_t others_lines_max = 3;

void append_field(std::string& out, std::string_view name, std::string_view value) {
  constexpr std::size_t name_width = 10;
  out.append("  ").append(name).append(name_width - name.size(), ' ').append(": ");
  out.append(value).append("\n");
}

/// Lines below a field, indented.
void append_block(std::string& out, std::string_view text) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    out.append("    ").append(text.substr(0, end)).append("\n");
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
}

std::string exit_text(const WorkerEnd& end) {
  const auto& status = end.status;
  const int code = status.signal != 0 ? -status.signal : status.code;
  std::string text = std::to_string(code) + " (pid: " + std::to_string(end.pid) + ")";
  if (status.signal != 0) text += ", " + describe(status);
  if (end.peer_lost) text += ", for the loss of a peer";
  if (status.succeeded()) text += ", left before the others";
  return text;
}

/// What PyTorch says where it was built without libuv, as Debian's is from 2.2 on: it cannot be a
/// client of any launcher's store.
constexpr std::string_view no_libuv = "use_libuv was requested but PyTorch was buil";

/// What the end usually means, where its own words do not say it.
std::string_view hint(const WorkerEnd& end) {
  for (const auto& line : end.last_lines) {
    if (line.find(no_libuv) == std::string::npos) continue;
    return "this PyTorch has no libuv, so its ranks cannot use a launcher's store; they meet with "
           "USE_LIBUV=0 in the environment and --torch-store rank0";
  }
  switch (end.status.signal) {
    case SIGKILL:
      return "dlaunch did not send this signal; the kernel does when memory runs out (see dmesg)";
    case SIGBUS:
      return "often a full /dev/shm, or a file that was truncated while mapped";
    case SIGILL:
      return "often a program built for another CPU";
    default:
      return {};
  }
}

void append_title(std::string& out, bool lines_of_both) {
  out += lines_of_both ? "  last lines of stdout and stderr:\n" : "  last lines of stderr:\n";
}

void append_end(std::string& out, std::size_t number, const WorkerEnd& end, bool in_full,
                std::chrono::seconds utc_offset, const std::string& why = {}) {
  out += "[" + std::to_string(number) + "]:\n";
  if (!why.empty()) append_field(out, "cause", why);
  append_field(out, "time", log_time(end.time, utc_offset));
  append_field(out, "host", end.host);
  append_field(out, "rank",
               std::to_string(end.rank) + " (local_rank: " + std::to_string(end.local_rank) + ")");
  append_field(out, "exitcode", exit_text(end));
  append_field(out, "error_file", end.error_file.empty() ? "<N/A>" : end.error_file);
  if (end.error && end.error->callstack.empty()) {
    append_field(out, "message", end.error->message);
  } else if (end.error) {
    append_field(out, "traceback", "");
    out.erase(out.size() - 2, 1);  // The space before an empty value.
    append_block(out, end.error->callstack);
  } else {
    append_field(out, "traceback", "<N/A>");
  }
  if (const auto text = hint(end); !text.empty()) append_field(out, "hint", text);
  const std::size_t shown =
      in_full ? end.last_lines.size() : std::min(end.last_lines.size(), others_lines_max);
  if (shown == 0 || (end.error && !end.error->callstack.empty())) return;
  append_title(out, end.lines_of_both);
  for (std::size_t i = end.last_lines.size() - shown; i < end.last_lines.size(); ++i) {
    out.append("    | ").append(end.last_lines[i]).append("\n");
  }
}

/// Appends what that rank's node has told of it.
void append_elsewhere(std::string& out, const rendezvous::RankDetails& rank,
                      std::chrono::seconds utc_offset) {
  const WallClock::time_point time{std::chrono::milliseconds(rank.time_ms)};
  append_field(out, "time", log_time(time, utc_offset));
  append_field(out, "node", rank.node + " (host: " + rank.host + ")");
  append_field(out, "rank",
               std::to_string(rank.rank) + " (local_rank: " + std::to_string(rank.local_rank) +
                   ", pid: " + std::to_string(rank.pid) + ")");
  append_field(out, "error_file", rank.error_file.empty() ? "<N/A>" : rank.error_file);
  if (!rank.message.empty()) append_field(out, "message", rank.message);
  if (rank.last_lines.empty()) return;
  append_title(out, rank.lines_of_both);
  for (const auto& line : rank.last_lines) out.append("    | ").append(line).append("\n");
}

/// Appends the ranks that had ended when dlaunch had stopped the attempt, and how: "ranks 1-3
/// (killed by SIGTERM)".
void append_stopped(std::string& out, const std::vector<WorkerEnd>& ends) {
  std::map<std::string, std::vector<int>> by_end;
  for (const auto& end : ends) {
    if (end.stopped_by_us) by_end[describe(end.status)].push_back(end.rank);
  }
  if (by_end.empty()) return;
  out += "Ended while dlaunch stopped the job:\n";
  for (const auto& [how, ranks] : by_end) {
    out += "  " + ranks_text(ranks) + " (" + how + ")\n";
  }
}

const WorkerEnd* find_rank(const std::vector<WorkerEnd>& ends, int rank) {
  const auto found = std::find_if(ends.begin(), ends.end(),
                                  [&](const WorkerEnd& end) { return end.rank == rank; });
  return found == ends.end() ? nullptr : &*found;
}

}  // namespace

std::string failure_summary(const FailureSummary& summary) {
  const WorkerEnd* root =
      summary.root_cause ? find_rank(summary.ends, *summary.root_cause) : nullptr;
  const bool is_here = summary.elsewhere.empty();
  if (root == nullptr && is_here) return {};

  std::vector<const WorkerEnd*> others;
  for (const auto& end : summary.ends) {
    if (end.failed() && (&end != root || !is_here)) others.push_back(&end);
  }
  const std::string border(width, '=');
  const std::string line(width, '-');
  const std::size_t failed = others.size() + (is_here && root->failed() ? 1 : 0);
  std::string out = border + "\n" + summary.program +
                    (summary.tolerated ? " ended with 0, though " + std::to_string(failed) +
                                             (failed == 1 ? " rank" : " ranks") +
                                             " failed on the way (--on-failure continue)"
                                       : " FAILED");
  if (summary.attempt > 0) {
    out += " after " + std::to_string(summary.attempt) + " of " +
           std::to_string(summary.max_restarts) + " restarts";
  }
  out += "\n" + line + "\nFailures:\n";
  if (others.empty()) out += is_here ? "  <NO_OTHER_FAILURES>\n" : "  <NO_FAILURES_HERE>\n";
  const std::size_t told = std::min(others.size(), others_told_max);
  for (std::size_t i = 0; i < told; ++i) {
    append_end(out, i + 1, *others[i], false, summary.utc_offset);
  }
  if (told < others.size()) {
    std::vector<int> ranks;
    for (std::size_t i = told; i < others.size(); ++i) ranks.push_back(others[i]->rank);
    out += "and " + std::to_string(ranks.size()) + " more: ranks " + number_ranges(ranks) + "\n";
  }
  append_stopped(out, summary.ends);
  if (is_here) {
    out += line +
           (summary.tolerated ? "\nFirst Failure:\n" : "\nRoot Cause (first observed failure):\n");
    append_end(out, 0, *root, true, summary.utc_offset, summary.why);
  } else {
    out += line + "\nRoot Cause (" +
           (summary.together ? "no rank failed by itself" : "none of this node's ranks") +
           "):\n  " + summary.elsewhere + "\n";
    if (summary.elsewhere_details) {
      append_elsewhere(out, *summary.elsewhere_details, summary.utc_offset);
    }
  }
  if (!summary.flight_file.empty()) {
    out += line + "\nEvery rank's last calls: " + summary.flight_file + "\n";
  }
  return out + border + "\n";
}

}  // namespace dlaunch::launcher
