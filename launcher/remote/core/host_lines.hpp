#pragma once

#include "launcher/request/job_spec.hpp"

#include <span>
#include <string>
#include <vector>

/// The command lines for the hosts of --hosts, for a shell. Pure.
namespace dlaunch::launcher::remote {

/// The place from which the hosts are started.
struct Here {
  std::string launcher;   ///< The path of dlaunch, the same on all hosts.
  std::string directory;  ///< The current one, where it runs there.
  std::string hostname;
  std::string job;      ///< The id for a job that was given none.
  bool secret = false;  ///< A secret comes by the standard input, as its first line.
};

/// A start from here: of one host's agent, or of one that starts those of more hosts.
struct HostStart {
  std::string host;
  std::vector<std::string> argv;
  int first_node = 0;            ///< Node rank of its first host.
  std::vector<HostAsked> hosts;  ///< All that it starts, with workers.
};

/// Whether the user named no meeting place: the nodes then meet at the first host, and need a
/// secret of their own.
bool chooses_meeting(const JobSpec& spec);

/// At most 32 starts; with more hosts each start starts some of the others, and so on.
std::vector<HostStart> plan_starts(const JobSpec& spec, std::span<const std::string> environment,
                                   const Here& here);

/// The text that --dry-run prints.
std::string describe_starts(const JobSpec& spec, std::span<const HostStart> starts,
                            std::span<const std::string> notes);

}  // namespace dlaunch::launcher::remote
