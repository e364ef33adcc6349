#include "launcher/hang/flight_dumps.hpp"
#include "launcher/hang/hang_report.hpp"
#include "launcher/hang/nccl_ras.hpp"
#include "launcher/hang/rank_process.hpp"
#include "launcher/hang/stack_groups.hpp"
#include "launcher/hang/stacks.hpp"
#include "launcher/process/stack_dump.hpp"
#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/rank_ranges.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::launcher {
namespace {

/// NCCL itself waits for 5 s for processes that do not answer it, and for as long again.
constexpr auto ras_patience = std::chrono::seconds(12);
/// A rank looks once a second whether its flight recorder is asked for, and PyTorch 2.11 takes two
/// seconds more to find the names of its first stacks.
constexpr auto dump_patience = std::chrono::seconds(6);
constexpr std::size_t ras_addresses_max = 4;

struct Asked {
  std::string job;
  RankRanges ranks;
  bool brief = false;
  Clock::duration timeout{};
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"rank", 0, "R,R-R...", "", options, {.adds_up = true}, "Only of these ranks."},
   take::by<&Asked::ranks, read_rank_ranges>},
  {{"short", 0, "", "0", options, {},
    "Ranks with the same stack together, only of their first thread and its innermost frames."},
   take::flag<&Asked::brief>},
  {{"timeout", 0, "TIME", "15", options, {},
    "How long py-spy or gdb may take for a rank; then it is killed, and the next way is tried."},
   take::duration<&Asked::timeout>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

/// The ranks that run, by number.
std::vector<JobRanks::Rank> ranks_of(const FoundJobs& found, std::string& problems) {
  const StatusFolder folder(false);
  std::vector<JobRanks::Rank> all;
  for (const auto& launcher : found.launchers) {
    if (launcher.agent <= 0) {
      problems += "dlaunch stack: the ranks of node " + launcher.entry.node + " of job " +
                  launcher.entry.job +
                  " cannot be seen from here; ask in the container in which they run\n";
      continue;
    }
    try {
      for (auto& rank : ask_ranks(folder, launcher.place).ranks) {
        if (rank.pid > 0) all.push_back(std::move(rank));
      }
    } catch (const Error& error) {
      problems += "dlaunch stack: " + std::string(error.what()) + "\n";
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return all;
}

std::string text_of(int rank, const ProcessStack& stack) {
  const std::string head = "\nrank " + std::to_string(rank) + " (pid " + std::to_string(stack.pid);
  if (stack.text.empty()) return head + ") has ended\n";
  return head + ", " + stack.program + "), by " + stack.by + ":\n" + stack.text;
}

/// Asks the launchers here until one has the store.
std::optional<JobStoreWaits> store_waits(const FoundJobs& found) {
  const StatusFolder folder(false);
  std::optional<JobStoreWaits> waits;
  for (const auto& launcher : found.launchers) {
    try {
      waits = ask_store_waits(folder, launcher.place);
    } catch (const Error&) {
      continue;  // The launcher has just ended, or is of another version.
    }
    if (!waits->elsewhere) break;
  }
  return waits;
}

/// The addresses at which NCCL's RAS of these ranks may listen, and whether somebody has set them.
std::map<std::string, bool> ras_addresses(const std::vector<JobRanks::Rank>& ranks) {
  std::map<std::string, bool> addresses;
  for (const auto& rank : ranks) {
    if (addresses.size() >= ras_addresses_max) break;
    const auto variables = variables_of(rank.pid);
    const auto enabled = variables.find("NCCL_RAS_ENABLE");
    if (enabled != variables.end() && enabled->second == "0") continue;
    const auto set = variables.find("NCCL_RAS_ADDR");
    if (set != variables.end()) {
      addresses.emplace(set->second, true);
    } else if (has_nccl(rank.pid)) {
      addresses.emplace(ras_address_standard, false);
    }
  }
  return addresses;
}

std::map<std::string, RasAnswer> ask_all_ras(const std::vector<JobRanks::Rank>& ranks,
                                             Clock::duration patience) {
  const auto deadline = Clock::now() + std::min<Clock::duration>(patience, ras_patience);
  std::map<std::string, RasAnswer> answers;
  for (const auto& [address, was_set] : ras_addresses(ranks)) {
    if (auto answer = ask_ras(address, deadline)) {
      answers.emplace(address, std::move(*answer));
    } else if (was_set) {
      answers.emplace(address, RasAnswer{{}, "nobody listens there"});
    }
  }
  return answers;
}

std::vector<FlightDump> ask_all_dumps(const std::vector<JobRanks::Rank>& ranks,
                                      Clock::duration patience) {
  std::vector<RecordingRank> recording;
  for (const auto& rank : ranks) {
    recording.push_back(
        {rank.rank, variables_of(rank.pid), has_nccl(rank.pid), begin_of(rank.pid)});
  }
  return flight_dumps(recording, Clock::now() + std::min<Clock::duration>(patience, dump_patience));
}

/// Advice on tools or rights that would show more.
std::string advice(const std::vector<ProcessStack>& stacks, const StackTools& tools) {
  const auto denied = [](const ProcessStack& stack) { return stack.denied; };
  const auto lacks_py_spy = [&](const ProcessStack& stack) {
    return stack.program.starts_with("python") && tools.py_spy.empty();
  };
  if (std::any_of(stacks.begin(), stacks.end(), denied)) {
    return "dlaunch stack: processes may not be looked into here; as root they may, or with "
           "kernel.yama.ptrace_scope=0, in a container with --cap-add SYS_PTRACE\n";
  }
  if (std::any_of(stacks.begin(), stacks.end(), lacks_py_spy)) {
    return "dlaunch stack: install py-spy to see Python's own frames (pip install py-spy)\n";
  }
  if (tools.gdb.empty() && std::ranges::any_of(stacks, &ProcessStack::by_kernel)) {
    return "dlaunch stack: install gdb to see the program's own frames\n";
  }
  return "";
}

std::vector<ProcessStack> read_stacks(const std::vector<JobRanks::Rank>& ranks,
                                      const StackTools& tools, Clock::duration timeout) {
  std::vector<ProcessStack> stacks;
  for (std::size_t begin = 0; begin < ranks.size(); begin += stacks_at_once()) {
    std::vector<std::future<ProcessStack>> some;
    const std::size_t end = std::min(begin + stacks_at_once(), ranks.size());
    for (std::size_t i = begin; i < end; ++i) {
      some.push_back(std::async(std::launch::async, read_stack, ranks[i].pid, tools, timeout));
    }
    for (auto& one : some) stacks.push_back(one.get());
  }
  return stacks;
}

std::vector<StackGroup> groups_of(const std::vector<JobRanks::Rank>& ranks,
                                  const std::vector<ProcessStack>& stacks) {
  std::vector<RankStack> all;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RankStack one{.rank = ranks[i].rank,
                  .pid = stacks[i].pid,
                  .program = stacks[i].program,
                  .by = stacks[i].by};
    one.frames = frames_of(stacks[i].text);
    if (const auto* own = own_frame(one.frames)) one.source = source_line(own->place);
    all.push_back(std::move(one));
  }
  return grouped(all);
}

EarlyExit show(const Asked& asked, const FoundJobs& found,
               const std::vector<JobRanks::Rank>& ranks) {
  const StackTools tools = find_stack_tools();
  HangReport report;
  // Asked before the tools make the ranks stand still.
  report.store = store_waits(found);
  auto ras = std::async(std::launch::async, ask_all_ras, ranks, asked.timeout);
  auto dumps = std::async(std::launch::async, ask_all_dumps, ranks, asked.timeout);
  const auto stacks = read_stacks(ranks, tools, asked.timeout);
  report.groups = groups_of(ranks, stacks);
  report.dumps = dumps.get();
  report.ras = ras.get();
  std::string text = to_text(report, asked.brief);
  if (!asked.brief) {
    for (std::size_t i = 0; i < ranks.size(); ++i) text += text_of(ranks[i].rank, stacks[i]);
  }
  if (const int code = say_and_exit_with(0, text); code != 0) return {code, ""};
  const std::string more = advice(stacks, tools);
  if (!more.empty() && !asked.brief) say_and_exit_with(exit_code::failed, more);
  return {0, ""};
}

}  // namespace

const OptionTable& stack_options() {
  static const OptionTable table(
      "dlaunch stack",
      "Usage: dlaunch stack [JOB] [options]\n"
      "\n"
      "Shows where the ranks of a job of this user are in their programs, those on this\n"
      "host: their stacks by py-spy for Python and by gdb for all else, or by what the\n"
      "kernel tells. Before them a line says where each rank is, the rank that differs\n"
      "first; then come the keys that ranks await in PyTorch's store, and the records\n"
      "of NCCL's RAS and PyTorch's flight recorder, if they are on. A rank stands still\n"
      "while it is looked at. Without JOB, the only one there is.\n",
      rows);
  return table;
}

EarlyExit run_stack(std::span<const std::string> arguments) {
  Asked asked;
  auto one = find_asked_job(stack_options(), rows, arguments, asked);
  if (auto* exit = std::get_if<EarlyExit>(&one)) return std::move(*exit);
  const FoundJobs found = std::get<FoundJobs>(std::move(one));
  std::string problems = found.problems;
  auto ranks = ranks_of(found, problems);
  std::vector<int> here;
  for (const auto& rank : ranks) here.push_back(rank.rank);
  std::erase_if(ranks, [&](const auto& rank) { return !asked.ranks.has(rank.rank); });
  if (ranks.empty() && problems.empty()) {
    problems = "dlaunch stack: " +
               (here.empty() ? "no rank of job " + found.jobs().front() + " runs here"
                             : asked.ranks.none_of(here)) +
               "\n";
  }
  if (ranks.empty()) return {exit_code::unreachable, problems};
  if (!problems.empty()) say_and_exit_with(exit_code::failed, problems);
  // gdb would ask servers for symbols.
  ::unsetenv("DEBUGINFOD_URLS");
  return show(asked, found, ranks);
}

}  // namespace dlaunch::launcher
