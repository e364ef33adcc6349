#include "rendezvous/daemon/state_commands.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/os/program.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::rendezvous {

bool has_sqlite() { return false; }

/// The configuration has refused such a state.
std::unique_ptr<StatePlace> open_state_file(const std::string&) { return nullptr; }

std::optional<int> run_state_command(std::span<const std::string> arguments) {
  constexpr std::array<std::string_view, 3> commands = {"check", "backup", "restore"};
  if (arguments.empty() || std::ranges::find(commands, arguments.front()) == commands.end()) {
    return std::nullopt;
  }
  return say_and_exit_with(exit_code::usage,
                           "dlaunchd: this build has no SQLite, and keeps nothing on disk\n");
}

}  // namespace dlaunch::rendezvous
