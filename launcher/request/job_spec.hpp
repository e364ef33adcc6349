#pragma once

#include "launcher/request/failure_rules.hpp"
#include "runtime/base/liveness.hpp"
#include "runtime/base/text/options.hpp"

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::launcher {

/// --nproc-per-node as asked; worker_count() in plan.hpp makes a number of it.
struct WorkersAsked {
  enum class Kind { number, cpu, gpu, automatic };
  Kind kind = Kind::number;
  int number = 0;  ///< For Kind::number.

  bool operator==(const WorkersAsked&) const = default;
};

/// --bind and --numa-binding: which cores a worker may use.
enum class Binding {
  none,          ///< All.
  node,          ///< The cores of its NUMA node.
  socket,        ///< The cores of its socket.
  exclusive,     ///< A part of its NUMA node that no other worker has.
  core_complex,  ///< The cores that share one last-level cache.
  core_share,    ///< As exclusive; where a node has too few cores, its workers take turns.
};

/// --torch-store: the process that serves PyTorch's store on MASTER_PORT.
enum class TorchStore {
  agent,  ///< The agent of node rank 0.
  rank0,  ///< PyTorch in rank 0, which alone finds the port free.
};

/// --shared-memory: the ranks that have memory in common.
enum class SharedMemory {
  host,  ///< The ranks of all nodes of a host that can share it.
  node,  ///< The ranks of each node.
};

/// --mpi: how the ranks of an MPI program learn of each other.
enum class MpiAsked {
  automatic,  ///< As the program's file tells.
  pmi,        ///< By PMI: MPICH, MVAPICH, Intel MPI.
  pmix,       ///< By PMIx: Open MPI.
  none,
};

/// --log-format: how the launcher writes its own lines.
enum class LogFormat { text, json };

/// --timings.
enum class Timings { none, text, json };

/// Which of a worker's streams: --redirects and --tee.
struct Streams {
  bool out = false;
  bool err = false;

  bool operator==(const Streams&) const = default;
};

/// "3", or "0:1,1:2": by local rank; a rank that is not listed has none.
struct StreamsByRank {
  Streams everyone;
  std::map<int, Streams> listed;

  Streams of(int local_rank) const;
  bool any() const { return everyone.out || everyone.err || !listed.empty(); }
  bool operator==(const StreamsByRank&) const = default;
};

/// How many nodes: --nnodes.
struct NodesAsked {
  int least = 1;
  int most = 1;

  bool elastic() const { return least < most; }
  bool operator==(const NodesAsked&) const = default;
};

/// --rdzv-role.
enum class RendezvousRole { automatic, host, join };

/// What --rdzv-conf sets; torchrun's names.
struct RendezvousTimes {
  std::chrono::milliseconds join{};       ///< join_timeout.
  std::chrono::milliseconds last_call{};  ///< last_call_timeout.
  std::chrono::milliseconds heartbeat{};  ///< keep_alive_interval.
  int heartbeats_missed_max = 0;          ///< keep_alive_max_attempt: then a node is lost.

  Liveness liveness() const { return Liveness::of(heartbeat, heartbeats_missed_max); }
  bool operator==(const RendezvousTimes&) const = default;
};

/// --restart-backoff, "MIN:MAX".
struct RestartPauses {
  std::chrono::milliseconds first{};  ///< 0: none.
  std::chrono::milliseconds longest{};

  bool operator==(const RestartPauses&) const = default;
};

/// --deadline: when the job is to end.
struct DeadlineAsked {
  std::chrono::milliseconds after{};  ///< From the start of dlaunch on; 0: not set.
  std::optional<std::chrono::sys_seconds> at = std::nullopt;  ///< An absolute time instead.
  bool by_scheduler = false;

  bool operator==(const DeadlineAsked&) const = default;
};

/// The place where the nodes of a job meet.
struct Meeting {
  enum class Kind {
    one_node,  ///< Nowhere: the agent is alone.
    fixed,     ///< --master-addr and --master-port: node rank 0 hosts, under the master port.
    /// --rdzv-endpoint: the node that can bind it hosts; else a daemon or another node does.
    endpoint,
  };
  Kind kind = Kind::one_node;
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Meeting&) const = default;
};

/// A variable of --env.
struct VariableAsked {
  std::string name;
  std::optional<std::string> value;  ///< Unset: as dlaunch itself has it.

  bool operator==(const VariableAsked&) const = default;
};

/// More workers on one node are refused.
inline constexpr int workers_max = 4096;

/// The program of some of a node's workers: a part of the command line between two ':'.
struct Part {
  std::vector<std::string> program;  ///< Program (module with `module`) and its arguments.
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  WorkersAsked workers;
  std::vector<VariableAsked> variables;  ///< --env, in its order: of equal names the last counts.
  std::string directory;                 ///< --cwd, a whole path; empty: dlaunch's own.
};

/// A host of --hosts.
struct HostAsked {
  std::string name;            ///< As ssh takes it: "b", "me@b"; "." is this one, without ssh.
  std::optional<int> workers;  ///< Unset: as --nproc-per-node says.

  bool operator==(const HostAsked&) const = default;
};

/// --health-port: where the agent tells of its health.
struct HealthAt {
  std::string host;
  std::uint16_t port = 0;  ///< 0: any free one.
  bool operator==(const HealthAt&) const = default;
};

/// A job as resolve() makes it from the request. A plain value that nothing changes afterwards; the
/// option table has the defaults. Its own Part is the first, and mostly the only one.
struct JobSpec : Part, FailureRules {
  std::vector<Part> later_parts;  ///< Their workers have the local ranks behind the first one's.
  bool bench = false;             ///< `dlaunch bench`: the program is the benchmark.
  std::string role;
  bool virtual_local_rank = false;
  std::optional<int> stdin_rank;  ///< Reads our stdin; unset: none does.
  Binding binding = Binding::none;
  std::string_view binding_flag = "numa-binding";  ///< The option that asked for it.
  MpiAsked mpi = MpiAsked::automatic;
  bool own_cgroup = true;  ///< --cgroup auto.

  // Other hosts.
  std::vector<HostAsked> hosts;  ///< Started from here; empty: this node alone is.
  std::vector<std::string> ssh;  ///< --ssh, in words: it is given a host and a line for a shell.
  bool ends_with_stdin = false;

  // The job, and where its ranks meet.
  std::optional<std::string> job_id;  ///< --rdzv-id; unset: the launcher makes a unique one.
  std::string scheduler_job;  ///< The scheduler's job of this node and others; empty: unknown.
  std::string node_id;        ///< --node-id; empty: the host's name.
  NodesAsked nodes;
  int spares = 0;                     ///< --spares.
  std::optional<int> node_rank;       ///< Unset: the rendezvous decides.
  std::uint16_t master_port = 0;      ///< 0: any free one.
  bool master_port_insisted = false;  ///< Asked for by name: when it is busy, that is an error.
  TorchStore torch_store = TorchStore::agent;
  SharedMemory shared_memory = SharedMemory::host;
  RendezvousRole rdzv_role = RendezvousRole::automatic;
  RendezvousTimes rdzv_times;
  std::string secret_file;        ///< --secret-file.
  std::string secret_credential;  ///< --secret-credential.
  std::optional<int> secret_fd;   ///< --secret-fd.
  std::string iface;       ///< --iface: a name or a CIDR; empty: what reaches the rendezvous.
  std::string local_addr;  ///< --local-addr: what other nodes are told.
  Meeting meeting;

  // Failures and the end, beside FailureRules.
  int max_restarts = 0;
  std::chrono::milliseconds restart_window{};  ///< --restart-window; 0: all restarts count.
  RestartPauses restart_backoff;
  std::chrono::milliseconds stuck_after{};         ///< --stuck-after; 0: never.
  std::chrono::milliseconds stall_timeout{};       ///< --stall-timeout; 0: never.
  bool stack_on_timeout = false;                   ///< --stack-on-timeout.
  std::optional<HealthAt> health;                  ///< --health-port; unset: none.
  std::string node_check;                          ///< --node-check, for a shell; empty: none.
  std::chrono::milliseconds node_check_timeout{};  ///< --node-check-timeout.
  DeadlineAsked deadline;
  DeadlineAsked deadline_latest;  ///< --deadline-latest: up to then workers may put it off.
  std::chrono::milliseconds deadline_notice{};  ///< --deadline-notice: so long before; 0: none.
  int deadline_signal = 0;                      ///< --deadline-signal, as a number.
  std::vector<int> signals;                     ///< --signals-to-handle, as numbers.
  std::vector<int> signals_ignored;  ///< Those of them that were ignored at the start, and stay so.

  // Output.
  std::optional<std::string> log_dir;
  StreamsByRank redirects;
  StreamsByRank tee;
  std::vector<int> local_ranks_filter;  ///< Empty: all.
  std::optional<std::string> log_line_prefix_template;
  std::vector<std::string> stdout_filters;  ///< --duplicate-stdout-filters: words to look for.
  std::vector<std::string> stderr_filters;
  std::optional<std::string> result_file;
  std::optional<std::string> flight_file;  ///< --flight-file.
  bool quiet = false;
  LogFormat log_format = LogFormat::text;
  Timings timings = Timings::none;
  bool dry_run = false;

  /// All parts, in the order of their local ranks; borrowed from this.
  std::vector<const Part*> parts() const;

  std::vector<Setting> settings;   ///< Every option, in the order of the help text.
  std::vector<std::string> notes;  ///< Sentences to say once: options without effect.
};

}  // namespace dlaunch::launcher
