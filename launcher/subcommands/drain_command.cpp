#include "launcher/subcommands/held_launcher.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dlaunch::launcher {
namespace {

struct Asked {
  std::string job;
  Clock::duration timeout{};
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"timeout", 0, "TIME", "1m", options, {},
    "How long to wait until this host has left. Its ranks end after --shutdown-timeout at the latest."},
   take::duration<&Asked::timeout>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

}  // namespace

const OptionTable& drain_options() {
  static const OptionTable table(
      "dlaunch drain",
      "Usage: dlaunch drain [JOB] [options]\n"
      "\n"
      "Takes this host out of a job of this user: its ranks here are ended, and the other\n"
      "nodes hear why. An elastic job goes on without it if enough nodes are left; another\n"
      "ends on all nodes. Waits until this host has left. Without JOB, the only one here.\n",
      rows);
  return table;
}

EarlyExit run_drain(std::span<const std::string> arguments) {
  Asked asked;
  auto one = find_asked_job(drain_options(), rows, arguments, asked);
  if (auto* exit = std::get_if<EarlyExit>(&one)) return std::move(*exit);
  const FoundJobs found = std::get<FoundJobs>(std::move(one));
  const StatusFolder folder(false);
  std::string problems = found.problems;
  std::vector<HeldLauncher> leaving;
  for (const auto& launcher : found.launchers) {
    const std::string node = "node " + launcher.entry.node;
    try {
      // The launcher is held before it is asked: it may be gone before it could be found again.
      HeldLauncher held = hold(folder, launcher);
      const bool is_stopped = ask_to_stop(folder, launcher.place, StatusQuestion::stop_asked);
      const std::string fate = is_stopped ? "is being stopped (dlaunch stop)"
                                          : drained_text(ask_to_drain(folder, launcher.place));
      const int code = say_and_exit_with(
          0, node + " leaves job " + launcher.entry.job + ", which " + fate + "\n");
      if (code != 0) return {code, ""};
      held.name = node + " of " + held.name;
      leaving.push_back(std::move(held));
    } catch (const Error& error) {
      problems += "dlaunch drain: " + std::string(error.what()) + "\n";
    }
  }
  const auto deadline = Clock::now() + asked.timeout;
  std::string text;
  for (const HeldLauncher& held : leaving) {
    if (wait_until(held, deadline)) {
      text += how_it_ended(held);
    } else {
      problems += "dlaunch drain: " + held.name + " still runs after " +
                  duration_text(asked.timeout) +
                  "; dlaunch status shows what its ranks do, dlaunch stop ends them\n";
    }
  }
  const int code = say_and_exit_with(0, text);
  if (code != 0 || problems.empty()) return {code, ""};
  return {leaving.empty() ? exit_code::unreachable : exit_code::failed, problems};
}

}  // namespace dlaunch::launcher
