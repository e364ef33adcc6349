#include "launcher/subcommands/find_jobs.hpp"
#include "launcher/subcommands/subcommands.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/process_stat.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/take.hpp"

#include <dlaunch/error.hpp>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
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
    "What the launcher is sent. After SIGKILL the ranks are killed, and nothing is told of their end.",
    {}, {}, "SIGTERM SIGINT SIGHUP SIGQUIT SIGKILL"},
   take::choice<&Asked::signal, signal_names>},
  {{"timeout", 0, "TIME", "1m", options, {},
    "How long to wait for the end. A job ends after its --shutdown-timeout at the latest."},
   take::duration<&Asked::timeout>},
  {{"help", 'h', "", "", options, {}, "Print this."}, nullptr},
});
// clang-format on

/// A launcher that was found, and is held fast: its number cannot become another process's.
struct Held {
  std::string name;  ///< "job demo (pid 4711)".
  unique_fd process;
  unique_fd farewell;  ///< Empty where the end will not be told.
};

/// nullopt where it has ended meanwhile, or is not to be seen: a sentence is left in `problems`.
std::optional<Held> hold(const StatusFolder& folder, const FoundJobs::Found& found,
                         std::string& problems) {
  const JobEntry& entry = found.entry;
  Held held{.name = "job " + entry.job, .process = {}, .farewell = {}};
  if (found.front <= 0 || entry.front_started == 0) {
    problems += "dlaunch stop: the launcher of job " + entry.job +
                " cannot be seen from here; stop it in the container in which it runs\n";
    return std::nullopt;
  }
  held.name += " (pid " + std::to_string(found.front) + ")";
  try {
    held.farewell = ask_for_end(folder, found.place);
  } catch (const Error&) {
    // It is about to end.
  }
  held.process = unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, found.front, 0)));
  if (!held.process && errno != ESRCH) {
    problems += "dlaunch stop: " + held.name + ": " + errno_text(errno) + "\n";
    return std::nullopt;
  }
  // Another process may have the number by now.
  const auto stat = process_stat(found.front);
  if (!held.process || !stat || stat->started != entry.front_started) held.process.reset();
  return held;
}

/// Whether the process has ended by then.
bool wait_until(const Held& held, Clock::time_point deadline) {
  for (;;) {
    pollfd wait{held.process.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

std::string how_it_ended(const Held& held) {
  std::array<std::byte, 64> block;
  const auto size =
      held.farewell ? ::recv(held.farewell.get(), block.data(), block.size(), MSG_DONTWAIT) : 0;
  const auto farewell =
      size > 0 ? decode_farewell(BytesView(block.data(), static_cast<std::size_t>(size)))
               : std::nullopt;
  if (!farewell) return held.name + " has ended, and did not tell how\n";
  const int code = farewell->exit_code;
  std::string text = held.name + " has ended with " + std::to_string(code);
  if (code > 128) text += " (" + signal_name(code - 128) + ")";
  return text + "\n";
}

EarlyExit stop_all(const Asked& asked, std::vector<Held> all, std::string text) {
  const auto deadline = Clock::now() + asked.timeout;
  for (const Held& held : all) {
    if (!held.process) continue;
    if (::syscall(SYS_pidfd_send_signal, held.process.get(), asked.signal, nullptr, 0) == 0) {
      continue;
    }
    if (errno == ESRCH) continue;
    return stop_options().refuse(exit_code::failed, held.name + ": " + errno_text(errno));
  }
  int code = 0;
  for (const Held& held : all) {
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
      "does, waits until it has ended, and says how. Without JOB, the only one there is.\n",
      rows);
  return table;
}

EarlyExit run_stop(std::span<const std::string> arguments) {
  Asked asked;
  GivenOptions given(stop_options());
  std::vector<std::string> words;
  if (auto stop = given.take_arguments(arguments, {.most = 1}, words)) return *std::move(stop);
  if (auto stop = given.apply(rows, asked)) return *std::move(stop);
  if (!words.empty()) asked.job = words.front();
  auto one = find_one_job("dlaunch stop", asked.job);
  if (auto* exit = std::get_if<EarlyExit>(&one)) return std::move(*exit);
  const FoundJobs found = std::get<FoundJobs>(std::move(one));
  const StatusFolder folder(false);
  std::string text = found.problems;
  std::vector<Held> all;
  for (const auto& launcher : found.launchers) {
    if (auto held = hold(folder, launcher, text)) all.push_back(*std::move(held));
  }
  if (all.empty()) return {exit_code::unreachable, text};
  return stop_all(asked, std::move(all), std::move(text));
}

}  // namespace dlaunch::launcher
