#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/text/take.hpp"
#include "runtime/base/text/wall_clock.hpp"

#include <array>
#include <string_view>
#include <vector>

namespace dlaunch::launcher {
namespace {

struct Asked {
  bool json = false;
};

constexpr std::string_view options = "Options";

constexpr auto rows = std::to_array<OptionRow<Asked>>({
    {{"json", 0, "", "0", options, {}, "The same as JSON; a line for each launcher."},
     take::flag<&Asked::json>},
    {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});

}  // namespace

const OptionTable& ps_options() {
  static const OptionTable table(
      "dlaunch ps",
      "Usage: dlaunch ps [options]\n"
      "\n"
      "Lists this user's jobs on this host, a line for each launcher: the job, whether it\n"
      "waits for its nodes, runs, is being restarted or stopped, its ranks here and in\n"
      "all, its age, the launcher's pid, and the program.\n",
      rows);
  return table;
}

EarlyExit run_ps(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(ps_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  const FoundJobs found = find_jobs("dlaunch ps", "");
  const auto now = WallClock::now();
  if (asked.json) return {.code = 0, .text = list_json(found.list(), now)};
  if (!found.launchers.empty()) {
    return {.code = 0, .text = found.problems + list_text(found.list(), now)};
  }
  return {.code = 0, .text = found.problems + "dlaunch ps: " + found.none("") + "\n"};
}

}  // namespace dlaunch::launcher
