#pragma once

#include "launcher/machine/machine.hpp"
#include "launcher/request/job_spec.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace dlaunch::launcher {

/// The number of workers that this node is to run, or why it cannot run any: there is no GPU, or an
/// option names a local rank or a variable that does not exist.
std::variant<int, EarlyExit> worker_count(const JobSpec& spec, const Machine& machine,
                                          std::span<const std::string> environment);

/// Refuses a variable that is to be handed on and is not set.
std::optional<EarlyExit> check_variables(const Part& part,
                                         std::span<const std::string> environment);

/// A note, said once, if the workers outnumber the GPUs that they can see: only the program knows
/// whether they may share one.
std::optional<std::string> note_of_few_gpus(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> environment, int workers);

/// A note, said once, if --bind core or l3 has fewer cores, or groups of cores, than workers, so
/// that workers share them in turn. Several workers in a NUMA node or a socket are not worth a
/// note.
std::optional<std::string> note_of_shared_cores(const JobSpec& spec, const Machine& machine,
                                                std::span<const std::string> environment,
                                                int workers);

/// This node's place in the job, for one attempt: what the rendezvous and the agent decided.
struct Assignment {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 1;
  int attempt = 0;
  /// Whether the nodes have changed since this attempt first began: its logs then lie beside the
  /// earlier ones.
  bool repeated_attempt = false;
  int node_rank = 0;
  int node_count = 1;
  int first_rank = 0;  ///< Global rank of this node's local rank 0.
  int local_size = 1;  ///< Workers on this node.
  int world_size = 1;
  std::string master_addr = "127.0.0.1";
  std::uint16_t master_port = 29500;
  /// Whether the agent listens on the master port for PyTorch's store.
  bool agent_store = true;
  int control_fd = 3;          ///< The number under which a worker inherits its control socket.
  std::string control_socket;  ///< "@dlaunch-...": the way back where that fd was closed.
  int pmi_fd = -1;             ///< The same for its PMI socket; -1: it has none.
  bool pmix = false;           ///< The workers are offered PMIx.
  /// The time of the job's end, in seconds since 1970; 0: not known.
  std::int64_t deadline = 0;
  /// The pipe that takes the workers' notices; empty where there is none.
  std::string notify_pipe;
  /// The logs and error files of all attempts lie below. Empty where none could be made: then all
  /// output goes to the console.
  std::string run_directory;
};

/// Whether dlaunch serves PyTorch's store: not under --torch-store rank0, nor for a lone worker,
/// which may host its own.
bool has_agent_store(const JobSpec& spec, int workers);

/// The assignment before any node has met another, for --dry-run: with several nodes, as if all
/// came, each with as many workers.
Assignment assignment_before_meeting(const JobSpec& spec, int workers);

/// A note of node rank 0 if --stdin names a rank that this world does not have. It comes this late
/// because the other nodes' workers are counted only now.
std::optional<std::string> note_of_stdin(const JobSpec& spec, const Assignment& assignment);

/// Assignment::run_directory: "<log-dir>/<job>_<random>".
std::string run_directory_name(std::string prefix, std::string_view job, std::string_view random);
/// "<log-dir>/"; without --log-dir a place below $TMPDIR or /tmp, as under torchrun, since error
/// files and --redirects need one.
std::string run_directory_prefix(const JobSpec& spec, std::span<const std::string> environment);

/// Whether output of workers is to go to files: --redirects, --tee, filters.
bool wants_logs(const JobSpec& spec);

/// The way of one stream of a worker. Without a file and console it is read and dropped, save for
/// the last lines, which the failure summary shows.
struct StreamPlan {
  bool console = true;              ///< Multiplexed line by line into the launcher's own stream.
  std::optional<std::string> file;  ///< Log file, to be created.
  bool filtered = false;            ///< Lines with certain words go to LaunchPlan::filter_*, too.

  bool operator==(const StreamPlan&) const = default;
};

struct StdioPlan {
  /// Whether both streams are the launcher's own, unread: a lone worker keeps the terminal.
  bool inherit = false;
  bool input = false;  ///< Gets the launcher's stdin; all others /dev/null.
  StreamPlan out;
  StreamPlan err;
  std::string prefix;           ///< Before each line on the console: "[3] "; may be empty.
  std::string filtered_prefix;  ///< Before each filtered line: "[default3]:", as torchrun has it.

  /// Whether all output of the worker goes to the console, and nowhere else.
  bool only_console() const;
  bool operator==(const StdioPlan&) const = default;
};

struct WorkerSpec {
  int rank = 0;
  int local_rank = 0;
  std::size_t program = 0;                   ///< Its place in LaunchPlan::programs.
  std::vector<std::string> own_environment;  ///< Appended to ProgramPlan::environment.
  StdioPlan stdio;
  std::vector<int> cores;  ///< The only ones it may use; empty: all.
  std::string error_file;  ///< The worker may leave its error.json there.
};

/// A file that all workers of the node share, for lines with any of the words.
struct FilterPlan {
  std::vector<std::string> words;
  std::string file;  ///< To be created.
};

/// The program of some of the workers, with what they have in common.
struct ProgramPlan {
  std::vector<std::string> argv;  ///< argv[0] is looked up in the environment's PATH.
  /// The file that the interpreter is to read, so that its absence can be told once and early.
  std::optional<std::string> script;
  std::vector<std::string> environment;  ///< "NAME=value".
  std::string directory;                 ///< Where they run; empty: where dlaunch does.
};

/// Everything that is needed to start an attempt's workers on this node.
struct LaunchPlan {
  Assignment assignment;
  std::vector<ProgramPlan> programs;     ///< At least one.
  std::vector<std::string> directories;  ///< To be made, parents first; below run_directory.
  /// The file that gets every rank's last calls when the attempt fails.
  std::optional<std::string> flight_file;
  /// The file that gets the workers' stacks when something has timed out; --stack-on-timeout.
  std::optional<std::string> stacks_file;
  std::optional<FilterPlan> filter_out;  ///< --duplicate-stdout-filters.
  std::optional<FilterPlan> filter_err;
  std::vector<WorkerSpec> workers;  ///< By local rank.
};

/// Makes the plan. Pure: the same inputs give the same plan.
LaunchPlan make_plan(const JobSpec& spec, const Machine& machine,
                     std::span<const std::string> environment, const Assignment& assignment);

/// Whether the program is a script or a module that Python runs, chosen by us.
bool runs_under_python(const Part& part);
/// The command that a worker runs: "python3 -u train.py" for "train.py". `inherited` is what
/// inherited_by() gives.
std::vector<std::string> worker_command(const Part& part, const Machine& machine,
                                        std::span<const std::string> inherited);

/// `${role_name} ${local_rank} ${rank} ${hostname}` filled in.
std::string expand_prefix(std::string_view pattern, std::string_view role, int local_rank, int rank,
                          std::string_view hostname);

/// Every option, and where its value came from.
std::string settings_text(const JobSpec& spec);
/// The text of --dry-run: the plan, the origin of each value, and the notes. `files` has, for each
/// of the plan's programs, the files that would be executed; empty where nothing can be.
std::string describe_plan(const JobSpec& spec, const Machine& machine, const LaunchPlan& plan,
                          std::span<const std::string> files, std::span<const std::string> notes);

}  // namespace dlaunch::launcher
