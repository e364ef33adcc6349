#include "launcher/report/summary.hpp"

#include "launcher/report/explanation.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <csignal>
#include <map>

namespace dlaunch::launcher {

namespace {

constexpr std::size_t width = 80;
/// A label and what stands around it: "  cause : ".
constexpr std::size_t indent = 10;
/// The last words that are shown; the logs and the error file have the rest.
constexpr std::size_t words_max = 10;
constexpr std::string_view traceback_begin = "Traceback (most recent call last)";
/// What the C++ runtime says of an exception that nobody caught: its type, and on the next line its
/// words.
constexpr std::string_view terminate_begin = "terminate called after throwing an instance of '";
constexpr std::string_view what_begin = "  what():  ";

/// "  cause : <text>", wrapped at blanks. A word that is wider than the block stays whole, so that
/// a path can be copied.
void append_field(std::string& out, std::string_view label, std::string_view text) {
  std::string line = "  " + std::string(label);
  line.append(indent - 2 - line.size(), ' ').append(": ");
  bool begins = true;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const auto word = text.substr(0, end);
    if (!begins && line.size() + 1 + word.size() > width) {
      out.append(line).append("\n");
      line.assign(indent, ' ');
      begins = true;
    }
    if (!begins) line += ' ';
    line += word;
    begins = false;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  out.append(line).append("\n");
}

/// A line without PyTorch's mark of its rank, "[rank3]: ".
std::string_view without_mark(std::string_view line) {
  if (!line.starts_with("[rank")) return line;
  const auto end = line.find("]: ");
  return end == std::string_view::npos ? line : line.substr(end + 3);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

bool has_traceback(const WorkerEnd& end) { return end.error && !end.error->callstack.empty(); }

/// The last words of a rank: its traceback, else the last lines that it wrote.
std::vector<std::string> words_of(const WorkerEnd& end) {
  auto lines = has_traceback(end) ? lines_of(end.error->callstack) : end.last_lines;
  // PyTorch's C++ exceptions bring their stack, behind which nobody would find their words.
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("frame #"); });
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  const std::size_t dropped = lines.size() - std::min(lines.size(), words_max);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(dropped));
  for (auto& line : lines) line = std::string(without_mark(line));
  return lines;
}

/// "RuntimeError: Timed out" of "RuntimeError: [/a/long/path.cc:78] Timed out", as gloo says it.
std::string without_source(std::string_view text) {
  const auto open = text.find(": [");
  const auto close = text.find("] ", open);
  if (open == text.npos || close == text.npos) return std::string(text);
  const auto inside = text.substr(open + 3, close - open - 3);
  const bool is_place = inside.find(".cc:") != inside.npos && inside.find(' ') == inside.npos;
  if (!is_place) return std::string(text);
  return std::string(text.substr(0, open + 2)).append(text.substr(close + 2));
}

/// "std::runtime_error: x" of the two lines about an exception that nobody caught. PyTorch's
/// watchdog of NCCL has words of its own before those of the exception that it met.
std::string thrown(std::string_view terminate, std::string_view what) {
  constexpr std::string_view met = "terminated with exception: ";
  terminate.remove_prefix(terminate_begin.size());
  what.remove_prefix(what_begin.size());
  if (const auto at = what.find(met); at != what.npos) what.remove_prefix(at + met.size());
  const auto mark = what.starts_with("[Rank ") ? what.find("] ") : what.npos;
  if (mark != what.npos) what.remove_prefix(mark + 2);
  return std::string(terminate.substr(0, terminate.find('\''))) + ": " + std::string(what);
}

/// "ValueError: x": the message in the error file, else the line with which a traceback ends, or
/// the exception that has ended a C++ program.
std::string raised(const WorkerEnd& end) {
  if (end.error) {
    return clipped(without_source(end.error->message.substr(0, end.error->message.find('\n'))));
  }
  std::string last;
  bool in_traceback = false;
  std::string_view before;
  for (const auto& line : end.last_lines) {
    const auto bare = without_mark(line);
    if (before.starts_with(terminate_begin) && bare.starts_with(what_begin)) {
      last = thrown(before, bare);
      in_traceback = false;
    }
    before = bare;
    if (bare.starts_with(traceback_begin)) {
      in_traceback = true;
    } else if (in_traceback && !bare.empty() && bare.front() != ' ') {
      last = bare;
      in_traceback = false;
    }
  }
  return clipped(without_source(last));
}

std::string time_text(WallClock::time_point at, std::chrono::seconds utc_offset) {
  std::string text = log_time(at, utc_offset);
  std::replace(text.begin(), text.end(), '_', ' ');
  return text;
}

/// "2026-11-20 12:45:10.251, 12.4 s after the start, pid 1001".
std::string when_and_where(const WorkerEnd& end, const FailureSummary& summary) {
  std::string text;
  if (!summary.cause_is_an_end) {
    text = describe(end.status) + (end.stopped_by_us ? " when dlaunch stopped the job, " : ", ");
  }
  text += time_text(end.time, summary.utc_offset);
  if (summary.started != WallClock::time_point{} && end.time >= summary.started) {
    text += ", " +
            age_text(std::chrono::duration_cast<Clock::duration>(end.time - summary.started)) +
            " after the start";
  }
  if (summary.several_nodes) {
    text += ", on " + end.host + " (local rank " + std::to_string(end.local_rank) + ")";
  }
  return text + ", pid " + std::to_string(end.pid);
}

std::string when_and_where(const rendezvous::RankDetails& rank, std::chrono::seconds utc_offset) {
  std::string text;
  if (rank.time_ms != 0) {
    const WallClock::time_point time{std::chrono::milliseconds(rank.time_ms)};
    text = time_text(time, utc_offset) + ", ";
  }
  const std::string host =
      rank.node == rank.host || rank.host.empty() ? "" : "host " + rank.host + ", ";
  return text + "on " + (rank.node.empty() ? rank.host : rank.node) + " (" + host + "local rank " +
         std::to_string(rank.local_rank) + "), pid " + std::to_string(rank.pid);
}

/// The ranks beside the culprits, in groups: "ranks 0,2 ended because of it; rank 5 exited with 3,
/// too".
std::string others_text(const FailureSummary& summary) {
  std::vector<int> because, killed, finished;
  struct Alike {
    bool by_signal = false;
    std::vector<int> ranks;
  };
  std::map<std::string, Alike> failed;
  for (const auto& end : summary.ends) {
    if (std::find(summary.culprits.begin(), summary.culprits.end(), end.rank) !=
        summary.culprits.end()) {
      continue;
    }
    if (end.stopped_by_us && end.status.signal == SIGKILL) {
      killed.push_back(end.rank);
    } else if (end.stopped_by_us || end.peer_lost || end.blames_others) {
      because.push_back(end.rank);
    } else if (end.status.succeeded()) {
      finished.push_back(end.rank);
    } else {
      Alike& alike = failed[describe(end.status)];
      alike.by_signal = end.status.signal != 0;
      alike.ranks.push_back(end.rank);
    }
  }
  std::vector<std::string> groups;
  if (!because.empty()) groups.push_back(ranks_text(because) + " ended because of it");
  if (!killed.empty()) {
    groups.push_back(ranks_text(killed) + " did not end in time and " +
                     (killed.size() == 1 ? "was" : "were") + " killed");
  }
  for (const auto& [how, alike] : failed) {
    const std::string was = !alike.by_signal ? " " : alike.ranks.size() == 1 ? " was " : " were ";
    groups.push_back(ranks_text(alike.ranks) + was + how +
                     (summary.culprits.empty() ? "" : ", too"));
  }
  if (!finished.empty()) groups.push_back(ranks_text(finished) + " exited with 0");
  std::string text;
  for (const auto& group : groups) text += (text.empty() ? "" : "; ") + group;
  return text;
}

/// A field; none where there is nothing to say.
void add(FailureBlock& out, std::string label, std::string text) {
  if (!text.empty()) out.fields.push_back({std::move(label), std::move(text)});
}

void append_words(FailureBlock& out, const std::vector<int>& ranks, bool is_traceback,
                  bool lines_of_both, const std::vector<std::string>& words) {
  if (words.empty()) return;
  const std::string_view what = is_traceback    ? "the end of its traceback"
                                : lines_of_both ? "its last lines on stdout and stderr"
                                                : "its last lines on stderr";
  add(out, "words",
      ranks.size() == 1 ? std::string(what)
                        : std::string(what) + "; those of " + ranks_text(ranks) + " are the same");
  out.fields.back().lines = words;
}

/// The ranks whose last words are these.
std::vector<int> ranks_that_said(const std::vector<std::string>& words,
                                 const FailureSummary& summary) {
  std::vector<int> ranks;
  for (const auto& end : summary.ends) {
    if (end.failed() && words_of(end) == words) ranks.push_back(end.rank);
  }
  return ranks;
}

/// The culprit's failure in a few words, if its output has them: "ValueError: x". A short line that
/// is its only one is shown here and nowhere else.
struct What {
  std::string text;
  bool is_all = false;
};
What what_of(const WorkerEnd& culprit, const FailureSummary& summary) {
  constexpr std::size_t short_max = 80;
  if (!summary.cause_is_an_end || summary.culprits.size() > 1) return {};
  if (auto text = raised(culprit); !text.empty()) return {std::move(text)};
  const auto words = words_of(culprit);
  // Its stdout says nothing about the signal that killed it; its stderr may.
  const bool unrelated = culprit.status.signal != 0 && culprit.lines_of_both;
  const bool all = words.size() == 1 && words.front().size() <= short_max && !unrelated &&
                   ranks_that_said(words, summary).size() == 1;
  return all ? What{words.front(), true} : What{};
}

/// The culprit's last words, once for all ranks that failed with the same ones.
void append_words(FailureBlock& out, const FailureSummary& summary, const WorkerEnd& culprit) {
  const auto words = words_of(culprit);
  auto ranks = ranks_that_said(words, summary);
  if (ranks.empty()) ranks.push_back(culprit.rank);
  append_words(out, ranks, has_traceback(culprit), culprit.lines_of_both, words);
}

/// Advice: what to look at next, or which options would leave something to look at.
void append_next(FailureBlock& out, const FailureSummary& summary, const WorkerEnd* culprit) {
  std::vector<std::string> files;
  const std::string error_file = culprit != nullptr  ? culprit->error_file
                                 : summary.elsewhere ? summary.elsewhere->error_file
                                                     : "";
  if (!error_file.empty()) files.push_back("its error file " + error_file);
  if (!summary.log_file.empty()) files.push_back("its log " + summary.log_file);
  if (!summary.flight_file.empty()) {
    files.push_back("every rank's last calls: " + summary.flight_file);
  }
  if (!summary.stacks_file.empty()) files.push_back("the ranks' stacks: " + summary.stacks_file);
  if (!files.empty()) return add(out, "see", joined(files));
  if (culprit == nullptr) return;
  const bool was_killed = culprit->status.signal == SIGKILL && culprit->failed();
  if (was_killed && summary.memory_kills && summary.memory_kills->count > 0) {
    return add(out, "try", "fewer workers (--nproc-per-node), or a higher limit");
  }
  if (culprit->status.succeeded() || !summary.cause_is_an_end) {
    return add(out, "try", "--flight-file FILE, which writes every rank's last calls");
  }
  add(out, "try", "--log-dir DIR --tee 3, which keeps what every rank writes");
}

const WorkerEnd* first_culprit(const FailureSummary& summary) {
  for (const int rank : summary.culprits) {
    for (const auto& end : summary.ends) {
      if (end.rank == rank) return &end;
    }
  }
  return nullptr;
}

std::string title(const FailureSummary& summary) {
  std::string text = summary.program;
  if (summary.tolerated) {
    const auto failed = std::count_if(summary.ends.begin(), summary.ends.end(),
                                      [](const WorkerEnd& end) { return end.failed(); });
    text += " ended with 0, though " + plural(failed, "rank") + " failed on the way";
  } else {
    text += " FAILED";
  }
  if (summary.attempt > 0) {
    text += " after " + std::to_string(summary.attempt);
    if (summary.restart_window.count() == 0) text += " of " + std::to_string(summary.max_restarts);
    text += " restarts";
    if (summary.restart_window.count() > 0) {
      text += " (at most " + std::to_string(summary.max_restarts) + " within " +
              duration_text(summary.restart_window) + ")";
    }
  }
  return text;
}

}  // namespace

std::optional<FailureBlock> failure_block(const FailureSummary& summary) {
  if (summary.cause.empty()) return std::nullopt;
  const WorkerEnd* culprit = first_culprit(summary);
  const auto& elsewhere = summary.elsewhere;
  FailureBlock out;
  out.title = title(summary);
  if (culprit != nullptr) out.rank = culprit->rank;
  if (culprit == nullptr && elsewhere) out.rank = elsewhere->rank;

  What what;
  if (culprit != nullptr) what = what_of(*culprit, summary);
  if (culprit == nullptr && elsewhere) what = {clipped(elsewhere->message)};
  add(out, summary.tolerated ? "first" : "cause",
      summary.cause + (what.text.empty() ? "" : ": " + what.text));
  if (culprit != nullptr) {
    add(out, "ended", when_and_where(*culprit, summary));
  } else if (elsewhere) {
    add(out, "ended", when_and_where(*elsewhere, summary.utc_offset));
  }
  add(out, culprit != nullptr ? "others" : "ranks", others_text(summary));
  add(out, "stacks", summary.stacks_headline);
  if (culprit != nullptr) {
    add(out, "why", explanation_of(*culprit, summary));
    add(out, "core", culprit->core_file.empty() ? culprit->core_note : culprit->core_file);
    if (!what.is_all) append_words(out, summary, *culprit);
  } else if (elsewhere) {
    append_words(out, {elsewhere->rank}, false, elsewhere->lines_of_both, elsewhere->last_lines);
  }
  append_next(out, summary, culprit);
  return out;
}

std::string to_text(const FailureBlock& block) {
  const std::string border(width, '=');
  std::string out = border + "\n" + block.title + "\n";
  for (const auto& field : block.fields) {
    append_field(out, field.label, field.text);
    for (const auto& line : field.lines) out.append("    | ").append(line).append("\n");
  }
  return out + border + "\n";
}

}  // namespace dlaunch::launcher
