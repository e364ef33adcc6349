#include "launcher/report/flight_report.hpp"
#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "launcher/watch/status_socket.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <poll.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

struct Asked {
  std::string job;
  bool json = false, flight = false;
  std::string timeline;
  Clock::duration watch{};  ///< 0: once.
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"json", 0, "", "0", options, {}, "The same as JSON; a line for each job."},
   take::flag<&Asked::json>},
  {{"flight", 0, "", "0", options, {},
    "Every rank's last calls as JSON, the first call in which the ranks went apart marked."},
   take::flag<&Asked::flight>},
  {{"timeline", 0, "FILE", "", options, {},
    "The same, drawn: a page for a browser, ranks as rows."},
   take::text<&Asked::timeline>},
  {{"watch", 0, "TIME", "0", options, {},
    "Show it anew every TIME, until no such job is left; 0: once."},
   take::duration<&Asked::watch>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

std::variant<Asked, EarlyExit> parse(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(status_options());
  std::vector<std::string> jobs;
  if (auto stop = given.take_arguments(arguments, {.most = 1}, jobs)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  if (!jobs.empty()) asked.job = jobs.front();
  return asked;
}

/// The jobs of each name.
using Jobs = std::map<std::string, std::vector<JobSnapshot>>;

/// Whether it is a whole job of one node, of which there may be several by one name. The rendezvous
/// of other jobs turns away a second one.
bool is_alone(const JobSnapshot& job) {
  return job.nodes.size() == 1 && job.nodes.front().node_count == 1 && !job.is_waiting();
}

bool are_one_job(const JobSnapshot& known, const JobSnapshot& told) {
  const auto is_known = [&](const NodeSnapshot& node) {
    return std::ranges::any_of(known.nodes, [&](const NodeSnapshot& other) {
      return other.agent == node.agent && other.node == node.node && other.host == node.host;
    });
  };
  if (known.is_waiting() || told.is_waiting()) return true;
  return !(is_alone(known) || is_alone(told)) || std::ranges::any_of(told.nodes, is_known);
}

void add(std::vector<JobSnapshot>& jobs, JobSnapshot told) {
  const auto same = std::ranges::find_if(
      jobs, [&](const JobSnapshot& known) { return are_one_job(known, told); });
  if (same == jobs.end()) return jobs.push_back(std::move(told));
  // A waiting node does not know that others run; the running ones' answers win.
  if (told.is_waiting() && !same->is_waiting()) return;
  if (!told.is_waiting() && same->is_waiting()) same->nodes.clear();
  for (auto& node : told.nodes) same->add(std::move(node));
}

/// Agents that do not answer are named in `problems`.
Jobs ask_all(const Asked& asked, const StatusFolder& folder, std::string& problems) {
  const bool flight = asked.flight || !asked.timeline.empty();
  Jobs answers;
  for (const auto& place : folder.places()) {
    if (!asked.job.empty() && place.job != asked.job) continue;
    auto& known = answers[place.job];
    // One node's agent answers for all nodes that answer it.
    const auto told_by_others = [](const auto& job) { return job.is_complete() && !is_alone(job); };
    if (std::ranges::any_of(known, told_by_others)) continue;
    try {
      auto told = ask_agent(folder, place,
                            flight ? AskSnapshot::Detail::flight : AskSnapshot::Detail::status);
      if (!told.nodes.empty()) add(known, std::move(told));
    } catch (const Error& error) {
      // One that was killed left its place behind, which is no trouble of anybody's.
      if (error.errc() != Errc::unreachable) {
        problems += "dlaunch status: " + std::string(error.what()) + "\n";
      }
    }
  }
  std::erase_if(answers, [](const auto& jobs) { return jobs.second.empty(); });
  return answers;
}

void pause_until(Clock::time_point end) {
  while (Clock::now() < end) ::poll(nullptr, 0, poll_timeout_ms(end));
}

EarlyExit draw(const Asked& asked, const JobSnapshot& job) {
  std::ofstream file(asked.timeline);
  file << timeline_html(job);
  file.close();
  if (!file)
    return status_options().refuse(exit_code::unreachable, "cannot write " + asked.timeline);
  return {.code = 0, .text = asked.timeline + "\n"};
}

std::string told(const Asked& asked, const Jobs& answers) {
  std::string text;
  for (const auto& [name, jobs] : answers) {
    for (const auto& job : jobs) {
      text += asked.flight ? flight_json(job) : asked.json ? status_json(job) : status_text(job);
    }
  }
  return text;
}

/// Prints `text`, and a new text after each pause, until there is none. On a terminal each replaces
/// the one before.
EarlyExit watch(const Asked& asked, const StatusFolder& folder, std::string text) {
  const bool redraws = ::isatty(STDOUT_FILENO) == 1 && !asked.json;
  for (;;) {
    if (redraws) text = "\033[H\033[2J" + text;
    if (const int code = say_and_exit_with(0, text); code != 0) return {code, ""};
    pause_until(Clock::now() + asked.watch);
    text.clear();
    const auto answers = ask_all(asked, folder, text);
    if (answers.empty()) return {.code = 0, .text = text};
    text += told(asked, answers);
  }
}

}  // namespace

const OptionTable& status_options() {
  static const OptionTable table(
      "dlaunch status",
      "Usage: dlaunch status [JOB] [options]\n"
      "\n"
      "Says of each rank of this user's jobs that have a node on this host, or of one\n"
      "job: its pid, whether it runs, is stopped or has ended, by how many calls it is\n"
      "behind the first, and what it does.\n",
      rows);
  return table;
}

EarlyExit run_status(std::span<const std::string> arguments) {
  auto parsed = parse(arguments);
  if (auto* exit = std::get_if<EarlyExit>(&parsed)) return std::move(*exit);
  const Asked asked = std::get<Asked>(std::move(parsed));
  if (asked.watch > asked.watch.zero() && (asked.flight || !asked.timeline.empty())) {
    return status_options().refuse(
        exit_code::usage,
        "--watch shows what the ranks do; --flight and --timeline do not "
        "go with it");
  }
  std::optional<StatusFolder> folder;
  try {
    folder.emplace(false);
  } catch (const Error& error) {
    return status_options().refuse(
        exit_code::unreachable,
        std::string("no job of this user runs on this host, or it cannot be found: ") +
            error.what());
  }
  std::string text;
  const auto answers = ask_all(asked, *folder, text);
  if (answers.empty()) {
    const std::string none = FoundJobs{.looked_in = folder->path()}.none(asked.job);
    return {exit_code::unreachable, text + "dlaunch status: " + none + "\n"};
  }
  if (!asked.timeline.empty()) {
    const auto& jobs = answers.begin()->second;
    if (answers.size() > 1)
      return status_options().refuse(exit_code::usage, "several jobs run here; name one");
    if (jobs.size() > 1) {
      return status_options().refuse(exit_code::usage,
                                     "several jobs of one name run here, and a "
                                     "page shows one");
    }
    return draw(asked, jobs.front());
  }
  text += told(asked, answers);
  if (asked.watch > asked.watch.zero()) return watch(asked, *folder, std::move(text));
  return {.code = 0, .text = text};
}

}  // namespace dlaunch::launcher
