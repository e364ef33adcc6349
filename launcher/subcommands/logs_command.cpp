#include "launcher/plan/environment.hpp"
#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/log_files.hpp"
#include "launcher/subcommands/log_view.hpp"
#include "launcher/subcommands/rank_ranges.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <poll.h>
#include <unistd.h>

extern char** environ;

namespace dlaunch::launcher {
namespace {

/// How often --follow looks at the files (some file systems give no notice of changes), and after
/// how many looks it asks whether the ranks were started again.
constexpr auto look_interval = std::chrono::milliseconds(100);
constexpr int looks_between_questions = 10;

struct Asked {
  std::string job, directory;
  RankRanges ranks;
  bool follow = false, out = false, err = false;
  Clock::duration since{};  ///< 0: ever.

  bool wants(const LogFile& file) const {
    const bool stream = file.stream == Stream::out ? out || !err : err || !out;
    return stream && ranks.has(file.rank);
  }
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"rank", 0, "R,R-R...", "", options, {.adds_up = true}, "Only of these ranks."},
   take::by<&Asked::ranks, read_rank_ranges>},
  {{"follow", 'f', "", "0", options, {},
    "Go on with what they write, also when they are started again, until the job ends."},
   take::flag<&Asked::follow>},
  {{"since", 0, "TIME", "0", options, {},
    "Only lines of the last TIME, more roughly the longer that is; 0: all."},
   take::duration<&Asked::since>},
  {{"stdout", 0, "", "0", options, {}, "Only what they wrote to stdout."},
   take::flag<&Asked::out>},
  {{"stderr", 0, "", "0", options, {}, "Only what they wrote to stderr."},
   take::flag<&Asked::err>},
  {{"dir", 0, "DIR", "", options, {},
    "The logs of a job that has ended: its --log-dir, or the job's own folder in it."},
   take::text<&Asked::directory>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

LogView::Manner manner_of_stdout() {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    environment.emplace_back(*variable);
  }
  const bool terminal = ::isatty(STDOUT_FILENO) == 1 && terminal_redraws(environment);
  return {.terminal = terminal, .colours = terminal && wants_colours(environment)};
}

void note(const std::string& lines) {
  if (!lines.empty()) say_and_exit_with(exit_code::failed, lines);
}

EarlyExit fail(const std::string& sentence) {
  return logs_options().refuse(exit_code::unreachable, sentence);
}

std::vector<LogFile> chosen(const Asked& asked, const std::vector<LogFile>& files) {
  std::vector<LogFile> some;
  std::copy_if(files.begin(), files.end(), std::back_inserter(some),
               [&](const LogFile& file) { return asked.wants(file); });
  return some;
}

/// Why there is nothing to show of the ranks that are here.
std::string why_none(const Asked& asked, const std::vector<int>& ranks, const std::string& whose) {
  if (auto why = asked.ranks.none_of(ranks); !why.empty()) return why;
  const std::string which = asked.out == asked.err ? "" : asked.out ? "stdout of " : "stderr of ";
  return whose + " keeps no logs of " + (which.empty() ? "" : "the " + which) +
         "these ranks; start it with --log-dir DIR --tee 3";
}

EarlyExit show_folder(const Asked& asked) {
  const auto read = log_files_below(asked.directory);
  if (const auto* complaint = std::get_if<Complaint>(&read)) return fail(complaint->sentence);
  const auto& files = std::get<std::vector<LogFile>>(read);
  const auto some = chosen(asked, files);
  if (some.empty()) {
    std::vector<int> ranks;
    for (const auto& file : files) ranks.push_back(file.rank);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return fail(why_none(asked, ranks, asked.directory));
  }
  LogView view(manner_of_stdout());
  note(view.show(some));
  return {view.end(), ""};
}

/// The ranks of a job's launchers on this host.
struct Ranks {
  std::vector<int> numbers;
  std::vector<LogFile> files;
};

Ranks ranks_of(const Asked& asked, const StatusFolder& folder, const FoundJobs& found) {
  Ranks all;
  for (const auto& launcher : found.launchers) {
    try {
      const JobRanks told = ask_ranks(folder, launcher.place);
      for (const auto& rank : told.ranks) all.numbers.push_back(rank.rank);
      for (auto& file : log_files_of(told, asked.since)) all.files.push_back(std::move(file));
    } catch (const Error& error) {
      // A launcher that has just ended is not asked again.
      if (error.errc() != Errc::unreachable) {
        note("dlaunch logs: " + std::string(error.what()) + "\n");
      }
    }
  }
  std::sort(all.numbers.begin(), all.numbers.end());
  std::stable_sort(all.files.begin(), all.files.end(),
                   [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return all;
}

/// Waits for the launchers' ends: each says farewell, or closes its socket.
class Ends {
 public:
  Ends(const StatusFolder& folder, const FoundJobs& found) {
    for (const auto& launcher : found.launchers) {
      try {
        sockets_.push_back(ask_for_end(folder, launcher.place));
      } catch (const Error&) {
        // It has ended.
      }
    }
  }
  bool all_within(std::chrono::milliseconds time) {
    std::vector<pollfd> waits;
    for (const auto& socket : sockets_) waits.push_back({socket.get(), POLLIN, 0});
    if (waits.empty()) return true;
    if (::poll(waits.data(), waits.size(), static_cast<int>(time.count())) <= 0) return false;
    for (std::size_t i = waits.size(); i-- > 0;) {
      if (waits[i].revents != 0) sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return sockets_.empty();
  }

 private:
  std::vector<unique_fd> sockets_;
};

EarlyExit follow(const Asked& asked, const StatusFolder& folder, const FoundJobs& found,
                 LogView view) {
  Ends ends(folder, found);
  for (int look = 1; !ends.all_within(look_interval); ++look) {
    if (const int code = view.catch_up(); code != 0) return {code, ""};
    if (look % looks_between_questions != 0) continue;
    const Ranks now = ranks_of(asked, folder, found);
    if (!now.numbers.empty()) note(view.show(chosen(asked, now.files)));
  }
  return {view.end(), ""};
}

EarlyExit show_job(const Asked& asked) {
  auto one = find_one_job("dlaunch logs", asked.job);
  if (auto* exit = std::get_if<EarlyExit>(&one)) return std::move(*exit);
  const FoundJobs found = std::get<FoundJobs>(std::move(one));
  note(found.problems);
  const StatusFolder folder(false);
  const Ranks now = ranks_of(asked, folder, found);
  const auto some = chosen(asked, now.files);
  const std::string whose = "job " + found.jobs().front();
  if (now.numbers.empty() && !asked.follow) return fail(whose + " has not started its ranks yet");
  if (some.empty() && !now.numbers.empty()) return fail(why_none(asked, now.numbers, whose));
  LogView view(manner_of_stdout());
  note(view.show(some));
  if (asked.follow) return follow(asked, folder, found, std::move(view));
  return {view.end(), ""};
}

}  // namespace

const OptionTable& logs_options() {
  static const OptionTable table(
      "dlaunch logs",
      "Usage: dlaunch logs [JOB] [options]\n"
      "\n"
      "Shows what the ranks of a job of this user have written to their log files on\n"
      "this host since they were last started, rank by rank, each line with its rank as\n"
      "on the console. Without JOB, the only one there is. The files are there if the\n"
      "job was started with --tee or --redirects, best with --log-dir.\n",
      rows);
  return table;
}

EarlyExit run_logs(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(logs_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {.most = 1}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  if (!words.empty()) asked.job = words.front();
  if (asked.directory.empty()) return show_job(asked);
  const std::string_view live = asked.follow               ? "--follow"
                                : !asked.job.empty()       ? "a job's name"
                                : asked.since.count() != 0 ? "--since"
                                                           : "";
  if (!live.empty()) {
    return given.refuse(
        "dir", "it is for a job that has ended; " + std::string(live) + " does not go with it");
  }
  return show_folder(asked);
}

}  // namespace dlaunch::launcher
