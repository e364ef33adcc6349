#pragma once

#include "runtime/base/text/options.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What a job scheduler tells a process it starts, so that no address, port or rank has to be given
/// on dlaunch's command line. Pure; docs/schedulers.md is the user's side of it.
namespace dlaunch::launcher {

/// A value, and the variable or file that told it.
struct Told {
  std::string value;  ///< Empty: nothing told it.
  std::string from;

  bool operator==(const Told&) const = default;
};

/// This node's place among those on which a scheduler started dlaunch. A plain value.
struct SchedulerPlace {
  std::string_view scheduler = {};  ///< Its name: "Slurm".
  std::optional<int> node_count;    ///< Unset: this scheduler does not say, and --nnodes has to.
  std::string count_from;
  std::optional<int> node_rank;  ///< Unset: it follows from nothing; the rendezvous decides.
  std::string rank_from;
  bool first = false;      ///< This is the node at `head`: it hosts, the others join.
  Told node_name;          ///< Set if the scheduler has a name for the node.
  Told job_id;             ///< Fit for --rdzv-id; the same on all nodes.
  Told head;               ///< Host name or address of the first node, as every node sees it.
  std::uint16_t port = 0;  ///< For the rendezvous; the same on all nodes of the job.

  std::string refusal;       ///< Why several nodes cannot be made of this, and what to do.
  std::string head_missing;  ///< The option that is needed if `head` is empty.
  std::string alone;         ///< To be said when it runs as one node for want of --nnodes.

  bool operator==(const SchedulerPlace&) const = default;
};

/// The place, or nothing where no scheduler started this process. A worker of dlaunch or torchrun
/// that launches again launches for itself: nothing, too. `read_file` is asked for /etc/hosts,
/// where a Kubernetes pod's full name stands.
std::optional<SchedulerPlace> scheduler_place(std::span<const std::string> environment,
                                              const FileReader& read_file = {});

/// Settings that win over the scheduler's: from the command line, and from DLAUNCH_ and PET_
/// variables.
struct AskedOfNodes {
  bool standalone = false;
  /// The most of --nnodes. If node_count is unset, a file's value counts, too.
  std::optional<int> most;
  bool meeting = false;  ///< --rdzv-endpoint or --master-addr.
};

/// Options as if they had been given; `where`: "Slurm: SLURM_STEP_NUM_NODES".
struct SchedulerSettings {
  std::vector<Setting> settings;  ///< Empty where this node is to be alone.
  std::string note;               ///< To be said once; may be empty.
  std::string refusal;            ///< Not empty: nothing is to be launched; the exit code is 64.

  bool operator==(const SchedulerSettings&) const = default;
};

/// The options that follow from the place: nnodes, node-rank, node-id, rdzv-id and, unless the
/// meeting place was given, rdzv-endpoint and rdzv-role. The caller lets the user's own options
/// win.
SchedulerSettings scheduler_settings(const SchedulerPlace& place, const AskedOfNodes& asked);

/// A value for --deadline if the scheduler's job ends at a known time, whoever started this process
/// in the job; none for a launcher's worker.
Told scheduler_deadline(std::span<const std::string> environment);

/// A port from 15000 to 24972. Jobs with numbers less than 100 apart, and their steps less than 99
/// apart, never share one: those are the jobs that run on one node at a time.
std::uint16_t port_of_job(std::uint64_t job, std::uint64_t step);
/// The same for a job that has a name only: two names share a port once in 9973 times.
std::uint16_t port_of_job(std::string_view name);

}  // namespace dlaunch::launcher
