#pragma once

#include "runtime/base/deadline.hpp"
#include "runtime/base/liveness.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The origin of a value, the strongest first.
enum class Origin {
  command_line,
  dlaunch_variable,
  pet_variable,
  scheduler,
  config_file,
  standard
};

/// One option as it was resolved, for --dry-run.
struct Setting {
  std::string flag;   ///< "nproc-per-node".
  std::string value;  ///< As written.
  Origin origin = Origin::standard;
  std::string where;  ///< "DLAUNCH_NPROC_PER_NODE", "job.toml"; empty where the origin says it all.

  bool operator==(const Setting&) const = default;
};

/// --nproc-per-node as asked; worker_count() in plan.hpp makes a number of it.
struct WorkersAsked {
  enum class Kind { number, cpu, gpu, automatic };
  Kind kind = Kind::number;
  int number = 1;  ///< For Kind::number.

  bool operator==(const WorkersAsked&) const = default;
};

/// --numa-binding: which cores a worker may use.
enum class NumaBinding {
  none,          ///< All.
  node,          ///< Those of its NUMA node.
  socket,        ///< Those of its socket.
  exclusive,     ///< A part of its NUMA node that no other worker has.
  core_complex,  ///< Those that share one last cache.
};

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

  bool operator==(const NodesAsked&) const = default;
};

/// --rdzv-role.
enum class RendezvousRole { automatic, host, join };

/// What --rdzv-conf sets; torchrun's names and defaults, save the keep-alive's.
struct RendezvousTimes {
  std::chrono::milliseconds join{600'000};      ///< join_timeout.
  std::chrono::milliseconds last_call{30'000};  ///< last_call_timeout.
  std::chrono::milliseconds heartbeat{1'000};   ///< keep_alive_interval.
  int heartbeats_missed_max = 5;                ///< keep_alive_max_attempt: then a node is lost.

  Liveness liveness() const { return Liveness::of(heartbeat, heartbeats_missed_max); }
  bool operator==(const RendezvousTimes&) const = default;
};

/// The place where the nodes of a job meet.
struct Meeting {
  enum class Kind {
    one_node,  ///< Nowhere: the agent is alone.
    fixed,     ///< --master-addr and --master-port: node rank 0 hosts, under the master port.
    endpoint,  ///< --rdzv-endpoint: who can bind it hosts, else it is a daemon's or another node's.
  };
  Kind kind = Kind::one_node;
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Meeting&) const = default;
};

/// The command line, resolved. A plain value. parse_options fills every field, with the documented
/// default where nothing was asked.
struct Options {
  // What to run.
  std::vector<std::string> program;  ///< Program (module with `module`) and its arguments.
  /// `dlaunch bench`: the program is "dlaunch-bench", to be found beside the launcher.
  bool bench = false;
  bool module = false;
  bool no_python = false;
  bool run_path = false;

  // How many.
  WorkersAsked workers;
  std::string role = "default";
  bool virtual_local_rank = false;
  std::optional<int> stdin_rank = 0;  ///< Reads our stdin; unset: none does.
  NumaBinding numa_binding = NumaBinding::none;

  // The job, and where its ranks meet.
  std::optional<std::string> job_id;  ///< --rdzv-id; unset: the launcher makes a unique one.
  std::string scheduler_job;  ///< The scheduler's job of this node and others; empty: unknown.
  std::string node_id;        ///< --node-id; empty: the host's name.
  bool standalone = false;
  NodesAsked nodes;
  std::optional<int> node_rank;  ///< Unset: the rendezvous decides.
  std::string master_addr = "127.0.0.1";
  bool master_addr_given = false;
  std::uint16_t master_port = 29500;  ///< 0: any free one.
  bool master_port_insisted = false;  ///< Asked for by name: when it is busy, that is an error.
  std::string rdzv_endpoint;
  RendezvousRole rdzv_role = RendezvousRole::automatic;
  RendezvousTimes rdzv_times;
  std::string secret_file;        ///< --secret-file.
  std::string secret_credential;  ///< --secret-credential.
  std::optional<int> secret_fd;   ///< --secret-fd.
  std::string iface;       ///< --iface: a name or a CIDR; empty: what reaches the rendezvous.
  std::string local_addr;  ///< --local-addr: what other nodes are told.
  Meeting meeting;         ///< Follows from the above.

  // When something fails, and at the end.
  int max_restarts = 0;
  bool continue_on_failure = false;  ///< --on-failure continue.
  std::chrono::milliseconds failure_grace = failure_grace_standard;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::chrono::milliseconds stuck_after{5'000};        ///< --stuck-after; 0: never.
  std::chrono::milliseconds straggler_notice{20'000};  ///< --straggler-notice; 0: never.
  std::chrono::milliseconds straggler_timeout{0};      ///< --straggler-timeout; 0: none.
  std::vector<int> signals;                            ///< --signals-to-handle, as numbers.
  std::vector<int> signals_ignored;                    ///< Some of these, by keep_ignored.

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
  bool dry_run = false;

  std::vector<Setting> settings;   ///< Every option, in the order of the help text.
  std::vector<std::string> notes;  ///< Sentences to say once: options without effect.
};

/// Nothing is to be launched: --help, --version, or a refusal. The text goes to stdout when the
/// code is 0, else to stderr; it ends in a newline.
struct EarlyExit {
  int code = 0;
  std::string text;

  bool operator==(const EarlyExit&) const = default;
};

/// Gives a file's text; nullopt where it cannot be read. For --config.
using FileReader = std::function<std::optional<std::string>(const std::string& path)>;

/// A signal that was ignored when the launcher was started stays so, for it and for the workers,
/// even if --signals-to-handle names it: nohup would be of no use otherwise.
void keep_ignored(Options& options, std::span<const int> ignored);

}  // namespace dlaunch::launcher
