#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/rank_ranges.hpp"
#include "launcher/subcommands/stack_text.hpp"
#include "launcher/subcommands/stacks.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <future>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::launcher {
namespace {

/// So many tools at once, each of which reads the symbols of all libraries.
constexpr std::size_t tools_max = 8;

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
  {{"short", 0, "", "0", options, {}, "Only each rank's first thread, with its innermost frames."},
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

std::string text_of(int rank, const ProcessStack& stack, bool brief) {
  const std::string head = "rank " + std::to_string(rank) + " (pid " + std::to_string(stack.pid);
  if (stack.text.empty()) return head + ") has ended\n";
  return head + ", " + stack.program + "), by " + stack.by + ":\n" +
         (brief ? shortened_stack(stack.text) : stack.text);
}

/// What would show more.
std::string advice(const std::vector<ProcessStack>& stacks, const StackTools& tools) {
  const auto kernel = [](const ProcessStack& stack) { return stack.by.starts_with("the kernel"); };
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
  if (tools.gdb.empty() && std::any_of(stacks.begin(), stacks.end(), kernel)) {
    return "dlaunch stack: install gdb to see the program's own frames\n";
  }
  return "";
}

EarlyExit show(const Asked& asked, const std::vector<JobRanks::Rank>& ranks) {
  const StackTools tools = find_stack_tools();
  const std::size_t at_once =
      std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, tools_max);
  std::vector<ProcessStack> stacks;
  for (std::size_t begin = 0; begin < ranks.size(); begin += at_once) {
    std::vector<std::future<ProcessStack>> some;
    const std::size_t end = std::min(begin + at_once, ranks.size());
    for (std::size_t i = begin; i < end; ++i) {
      some.push_back(
          std::async(std::launch::async, read_stack, ranks[i].pid, tools, asked.timeout));
    }
    for (std::size_t i = begin; i < end; ++i) {
      stacks.push_back(some[i - begin].get());
      const std::string text = text_of(ranks[i].rank, stacks.back(), asked.brief);
      const int code = say_and_exit_with(0, (i == 0 || asked.brief ? "" : "\n") + text);
      if (code != 0) return {code, ""};
    }
  }
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
      "kernel tells. A rank stands still while it is looked at. Without JOB, the only\n"
      "one there is.\n",
      rows);
  return table;
}

EarlyExit run_stack(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(stack_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {.most = 1}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  if (!words.empty()) asked.job = words.front();
  auto one = find_one_job("dlaunch stack", asked.job);
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
  return show(asked, ranks);
}

}  // namespace dlaunch::launcher
