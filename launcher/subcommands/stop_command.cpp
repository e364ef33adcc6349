#include "launcher/subcommands/held_launcher.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/take.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

namespace dlaunch::launcher {
namespace {

constexpr auto signal_names = std::to_array<take::Named<int>>({
    {"SIGTERM", SIGTERM},
    {"SIGINT", SIGINT},
    {"SIGHUP", SIGHUP},
    {"SIGQUIT", SIGQUIT},
    {"SIGKILL", SIGKILL},
});

struct Asked {
  std::string job;
  int signal = SIGTERM;
  Clock::duration timeout{};
};

constexpr std::string_view options = "Options";

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Asked>>({
  {{"signal", 0, "NAME", "SIGTERM", options, {},
    "The signal for the launcher. After SIGKILL the ranks are killed, and nothing tells their end.",
    {}, {}, "SIGTERM SIGINT SIGHUP SIGQUIT SIGKILL"},
   take::choice<&Asked::signal, signal_names>},
  {{"timeout", 0, "TIME", "1m", options, {},
    "How long to wait for the end. A job ends after its --shutdown-timeout at the latest."},
   take::duration<&Asked::timeout>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

struct Stopped {
  HeldLauncher held;
  StatusFolder::Place place;
};

/// Nobody who asks for SIGKILL wants to wait for another's SIGTERM.
bool is_stopped_by_others(const Asked& asked, const StatusFolder& folder, const Stopped& one) {
  return asked.signal != SIGKILL && ask_to_stop(folder, one.place, StatusQuestion::stop);
}

EarlyExit stop_all(const Asked& asked, const StatusFolder& folder, const std::vector<Stopped>& all,
                   std::string text) {
  const auto deadline = Clock::now() + asked.timeout;
  for (const Stopped& one : all) {
    if (!one.held.process || is_stopped_by_others(asked, folder, one)) continue;
    const int process = one.held.process.get();
    if (::syscall(SYS_pidfd_send_signal, process, asked.signal, nullptr, 0) == 0) continue;
    if (errno == ESRCH) continue;
    return stop_options().refuse(exit_code::failed, one.held.name + ": " + errno_text(errno));
  }
  int code = 0;
  for (const auto& [held, place] : all) {
    if (!held.process || wait_until(held, deadline)) {
      text += how_it_ended(held);
    } else {
      code = exit_code::failed;
      text += "dlaunch stop: " + held.name + " still runs after " + duration_text(asked.timeout) +
              "; dlaunch status shows what its ranks do, --signal SIGKILL ends them\n";
    }
  }
  return {code, text};
}

}  // namespace

const OptionTable& stop_options() {
  static const OptionTable table(
      "dlaunch stop",
      "Usage: dlaunch stop [JOB] [options]\n"
      "\n"
      "Ends a job of this user that has a node on this host: asks its launcher, as Ctrl-C\n"
      "does, waits until it has ended, and says how. Without JOB, the only one there is.\n"
      "If several jobs have that name, all of them are stopped.\n",
      rows);
  return table;
}

EarlyExit run_stop(std::span<const std::string> arguments) {
  Asked asked;
  auto one = find_asked_job(stop_options(), rows, arguments, asked);
  if (auto* exit = std::get_if<EarlyExit>(&one)) return std::move(*exit);
  const FoundJobs found = std::get<FoundJobs>(std::move(one));
  const StatusFolder folder(false);
  std::string text = found.problems;
  std::vector<Stopped> all;
  for (const auto& launcher : found.launchers) {
    HeldLauncher held = hold(folder, launcher);
    if (!held.seen) {
      text += "dlaunch stop: the launcher of " + held.name +
              " cannot be seen from here; stop it in the container in which it runs\n";
    } else if (!held.problem.empty()) {
      text += "dlaunch stop: " + held.name + ": " + held.problem + "\n";
    } else {
      all.push_back({std::move(held), launcher.place});
    }
  }
  if (all.empty()) return {exit_code::unreachable, text};
  if (all.size() > 1) {
    text += plural(all.size(), "launcher") + " of job " + found.jobs().front() +
            " on this host: each is stopped\n";
  }
  return stop_all(asked, folder, all, std::move(text));
}

}  // namespace dlaunch::launcher
