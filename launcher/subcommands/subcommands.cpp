#include "launcher/subcommands/subcommands.hpp"

#include <algorithm>
#include <array>

namespace dlaunch::launcher {

std::span<const Subcommand> subcommands() {
  static constexpr auto all = std::to_array<Subcommand>({
      {"ctl", run_ctl, ctl_options},
      {"doctor", run_doctor, doctor_options},
      {"drain", run_drain, drain_options},
      {"logs", run_logs, logs_options},
      {"ps", run_ps, ps_options},
      {"stack", run_stack, stack_options},
      {"status", run_status, status_options},
      {"stop", run_stop, stop_options},
  });
  return all;
}

const Subcommand* find_subcommand(std::string_view name) {
  const auto all = subcommands();
  const auto found = std::ranges::find(all, name, &Subcommand::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace dlaunch::launcher
