#pragma once

#include "launcher/hang/flight_dumps.hpp"
#include "launcher/hang/nccl_ras.hpp"
#include "launcher/hang/stack_groups.hpp"
#include "launcher/watch/job_entry.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Everything known about why the ranks of this host stand still.
struct HangReport {
  std::vector<StackGroup> groups;
  std::optional<JobStoreWaits> store;  ///< nullopt: its launcher did not say.
  std::vector<FlightDump> dumps;
  std::map<std::string, RasAnswer> ras;  ///< By address.
};

/// The report, the headline first; with `stacks` it has each group's innermost frames, too. Pure.
std::string to_text(const HangReport& report, bool stacks);

}  // namespace dlaunch::launcher
