#pragma once

#include "launcher/request/job_spec.hpp"

#include <span>
#include <string>
#include <vector>

/// What is started on the hosts of --hosts, as lines for a shell. Pure.
namespace dlaunch::launcher::remote {

/// Here, where the hosts are started from.
struct Here {
  std::string launcher;   ///< The path of dlaunch, which it has on the hosts, too.
  std::string directory;  ///< The current one, where it runs there.
  std::string hostname;
  std::string job;      ///< The id of a job that was given none.
  bool secret = false;  ///< A secret comes by the standard input, as its first line.
};

/// A start from here: of one host's agent, or of one that starts those of more hosts.
struct HostStart {
  std::string host;
  std::vector<std::string> argv;
  int first_node = 0;            ///< Of all that it starts.
  std::vector<HostAsked> hosts;  ///< All that it starts, with workers.
};

/// Nothing was said of where the nodes meet: they do at the first host, and need a secret that
/// nobody else has.
bool chooses_meeting(const JobSpec& spec);

/// At most 32 starts: of more hosts, each starts some of the others, and so on.
std::vector<HostStart> plan_starts(const JobSpec& spec, std::span<const std::string> environment,
                                   const Here& here);

/// The text that --dry-run prints.
std::string describe_starts(const JobSpec& spec, std::span<const HostStart> starts,
                            std::span<const std::string> notes);

}  // namespace dlaunch::launcher::remote
