// Longer than a sitting: a row an option, one like the other.
#include "launcher/request/option_table.hpp"

#include "launcher/request/brief_help.hpp"
#include "launcher/request/option_values.hpp"
#include "runtime/base/text/control.hpp"
#include "runtime/base/text/take.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace dlaunch::launcher {

namespace {

constexpr long restarts_max = 1'000'000;
constexpr long node_ranks_max = 100'000;
constexpr long spares_max = 65'536;
constexpr long ranks_max = 10'000'000;
constexpr long descriptors_max = 1'000'000;

constexpr auto torch_stores = std::to_array<take::Named<TorchStore>>({
    {"agent", TorchStore::agent},
    {"rank0", TorchStore::rank0},
});

constexpr auto shared_memories = std::to_array<take::Named<SharedMemory>>({
    {"host", SharedMemory::host},
    {"node", SharedMemory::node},
});

constexpr auto bindings = std::to_array<take::Named<Binding>>({
    {"node", Binding::node},
    {"socket", Binding::socket},
    {"exclusive", Binding::exclusive},
    {"core-complex", Binding::core_complex},
});
constexpr auto units = std::to_array<take::Named<Binding>>({
    {"core", Binding::core_share},
    {"l3", Binding::core_complex},
    {"numa", Binding::node},
    {"socket", Binding::socket},
    {"none", Binding::none},
});
/// Whether the workers get a cgroup of their own.
constexpr auto cgroups = std::to_array<take::Named<bool>>({{"auto", true}, {"none", false}});
constexpr auto mpis = std::to_array<take::Named<MpiAsked>>({
    {"auto", MpiAsked::automatic},
    {"pmi", MpiAsked::pmi},
    {"pmix", MpiAsked::pmix},
    {"none", MpiAsked::none},
});
constexpr auto log_formats = std::to_array<take::Named<LogFormat>>({
    {"text", LogFormat::text},
    {"json", LogFormat::json},
});
constexpr auto timings = std::to_array<take::Named<Timings>>({
    {"none", Timings::none},
    {"text", Timings::text},
    {"json", Timings::json},
});
constexpr auto roles = std::to_array<take::Named<RendezvousRole>>({
    {"auto", RendezvousRole::automatic},
    {"host", RendezvousRole::host},
    {"join", RendezvousRole::join},
});
/// Whether the other workers go on.
constexpr auto failures = std::to_array<take::Named<bool>>({{"stop", false}, {"continue", true}});

Taken worker_number(Draft& draft, std::string_view value) {
  using Kind = WorkersAsked::Kind;
  auto& asked = draft.workers;
  if (value == "cpu") return asked.kind = Kind::cpu, std::nullopt;
  if (value == "gpu") return asked.kind = Kind::gpu, std::nullopt;
  if (value == "auto") return asked.kind = Kind::automatic, std::nullopt;
  asked.kind = Kind::number;
  auto complaint = take::store(read_integer(value, 1, workers_max), asked.number);
  if (complaint && !value.empty() && !std::isdigit(static_cast<unsigned char>(value.front())) &&
      value.front() != '-') {
    return Complaint{in_quotes(value) + " is neither a number nor cpu, gpu or auto"};
  }
  return complaint;
}

/// Accepts one of these words, none of which changes anything.
Taken one_of(std::initializer_list<take::Named<bool>> names, std::string_view value) {
  bool ignored = false;
  return take::store_choice(value, names, ignored);
}

Taken variable(Draft& draft, std::string_view value) {
  return take::store(read_variable(value), draft.variables.emplace_back());
}

Taken start_method(Draft&, std::string_view value) {
  return one_of({{"spawn", true}, {"fork", true}, {"forkserver", true}}, value);
}

Taken rdzv_backend(Draft&, std::string_view value) {
  if (value.starts_with("etcd")) {
    return Complaint{"dlaunch brings its own rendezvous and needs no etcd; leave it out"};
  }
  return one_of({{"static", true}, {"c10d", true}, {"dlaunch", true}}, value);
}

Taken ignored_duration(Draft&, std::string_view value) {
  std::chrono::milliseconds ignored{};
  return take::store(read_duration(value), ignored);
}

Taken node_id(Draft& draft, std::string_view value) {
  constexpr std::size_t bytes_max = 255;
  if (value.size() > bytes_max || std::ranges::any_of(value, is_control)) {
    return Complaint{"at most 255 bytes are allowed, none of them a control character"};
  }
  return take::text<&Draft::node_id>(draft, value);
}

Taken stdin_rank(Draft& draft, std::string_view value) {
  auto& rank = draft.stdin_rank;
  if (value == "none") return rank.reset(), std::nullopt;
  auto complaint = take::store(read_integer(value, 0, ranks_max), rank.emplace());
  if (complaint) return Complaint{in_quotes(value) + " is neither a rank nor none"};
  return complaint;
}

Taken rdzv_conf(Draft& draft, std::string_view value) {
  std::vector<std::string> unused;
  auto complaint =
      take::store(read_rendezvous_conf(value, draft.rdzv_times, unused), draft.rdzv_times);
  for (const auto& key : unused) {
    draft.notes.push_back("--rdzv-conf " + key + " has no effect: dlaunch does not need it.");
  }
  return complaint;
}

template <auto Member>
Taken host(Draft& draft, std::string_view value) {
  if (auto complaint = check_host(value)) return complaint;
  return take::text<Member>(draft, value);
}

constexpr std::string_view rendezvous_times =
    "join_timeout=600, last_call_timeout=30, keep_alive_interval=1, keep_alive_max_attempt=5";
constexpr std::string_view workers = "Workers";
constexpr std::string_view meeting = "Meeting";
constexpr std::string_view failure = "Failure and end";
constexpr std::string_view output = "Output";
constexpr std::string_view information = "Configuration and information";
constexpr OptionTraits also_torchrun{.file = true, .variable = true, .pet = true};
constexpr OptionTraits ours{.file = true, .variable = true};
constexpr OptionTraits not_in_file{.variable = true};
constexpr OptionTraits program_of_part{
    .file = true, .variable = true, .pet = true, .of_part = true};

// clang-format off
constexpr auto rows = std::to_array<OptionRow<Draft>>({
  {{"module", 'm', "", "0", program_section, program_of_part,
    "The program is a Python module, run by python -m."}, take::flag<&Draft::module>},
  {{"no-python", 0, "", "0", program_section, program_of_part,
    "Run a .py program as it is, without the interpreter."}, take::flag<&Draft::no_python>},
  {{"run-path", 0, "", "0", program_section, program_of_part,
    "Run the program under Python, whatever its name."}, take::flag<&Draft::run_path>},

  {{"nproc-per-node", 0, "N|cpu|gpu|auto", "1", workers, program_of_part,
    "Workers on this node: a number, one per usable core, one per GPU, or per GPU where there "
    "is one, else per core.",
    {}, "n np nproc num-procs ntasks ntasks-per-node"}, worker_number},
  {{"env", 0, "NAME=VALUE", "", workers, {.repeats = true, .of_part = true},
    "Set a variable for the workers, with NAME alone to the value that it has here; may be given "
    "several times.", {}, "setenv genv x"}, variable},
  {{"cwd", 0, "DIR", "", workers, {.file = true, .variable = true, .of_part = true},
    "Where the workers run, and from where a program with a relative path is taken; default: "
    "where dlaunch was started.", {}, "wdir workdir chdir"}, take::text<&Draft::directory>},
  {{"role", 0, "NAME", "default", workers, also_torchrun,
    "A name for the workers, for ROLE_NAME and line prefixes."}, take::text<&Draft::role>},
  {{"virtual-local-rank", 0, "", "0", workers, also_torchrun,
    "Each worker sees one GPU only and has LOCAL_RANK 0."}, take::flag<&Draft::virtual_local_rank>},
  {{"stdin", 0, "RANK|none", "0", workers, ours,
    "The rank that reads our standard input, from a terminal, too; the others have none."},
   stdin_rank},
  {{"bind", 0, "core|l3|numa|socket|none", "none", workers, ours,
    "Bind each worker to its share of the cores, to cores that share a cache, to a NUMA node or "
    "to a socket; beside its GPU where each has one.", {}, "bind-to cpu-bind"},
   take::choice<&Draft::bind, units>},
  {{"numa-binding", 0, "node|socket|exclusive|core-complex", "", workers, also_torchrun,
    "The same, as torchrun names it; exclusive: cores of its own, or none of the workers starts."},
   take::choice<&Draft::numa_binding, bindings>},
  {{"shared-memory", 0, "host|node", "host", workers, ours,
    "The ranks that have memory in common: those of all nodes of a host, where they run as one "
    "user in the same namespaces, or of each node."},
   take::choice<&Draft::shared_memory, shared_memories>},
  {{"cgroup", 0, "auto|none", "auto", workers, ours,
    "Give the workers a cgroup of their own, where dlaunch may make one: nothing that they start "
    "outlives them."}, take::choice<&Draft::own_cgroup, cgroups>},
  {{"mpi", 0, "auto|pmi|pmix|none", "auto", workers, ours,
    "How the ranks of an MPI program learn of each other: by PMI (MPICH, MVAPICH, Intel MPI) or "
    "PMIx (Open MPI); auto: as the program's file tells."}, take::choice<&Draft::mpi, mpis>},
  {{"start-method", 0, "spawn|fork|forkserver", "spawn", workers, also_torchrun,
    "How torchrun starts its workers.",
    "workers are programs of their own, never forks of the launcher"}, start_method},

  {{"hosts", 0, "HOST:N,...", "", meeting, ours,
    "Start the job on these hosts, over ssh, with N workers on each; . is this host. Without N: "
    "--nproc-per-node.", {}, "host machinefile"}, take::text<&Draft::hosts_text>},
  {{"hostfile", 0, "FILE", "", meeting, ours,
    "The same, with a line HOST:N, or HOST slots=N, for each host."}, take::nothing},
  {{"ssh", 0, "PROGRAM", "ssh -T -o BatchMode=yes", meeting, ours,
    "The program that starts a line on a host: PROGRAM HOST LINE.", {}, "rsh launch-agent"},
   take::by<&Draft::ssh, read_program>},
  {{"ends-with-stdin", 0, "", "0", meeting, {},
    "End the job when standard input ends, which no rank reads then, or the process that started "
    "dlaunch; so does what --hosts starts, when dlaunch here is gone."}, take::flag<&Draft::ends_with_stdin>},

  {{"nnodes", 0, "N|MIN:MAX", "1:1", meeting, also_torchrun,
    "Number of nodes; the same line is started on each."}, take::by<&Draft::nodes, read_nodes>},
  {{"spares", 0, "N", "0", meeting, ours,
    "N more nodes may come and wait; a lost node is replaced by one of them at once, which costs "
    "no restart."}, take::number<&Draft::spares, 0, spares_max>},
  {{"node-rank", 0, "R", "", meeting, also_torchrun,
    "This node's place among the nodes; default: decided where they meet."},
   take::number<&Draft::node_rank, 0, node_ranks_max>},
  {{"node-id", 0, "NAME", "", meeting, ours,
    "This node's name, unique in the job; default: the host's, with what makes it unique."},
   node_id},
  {{"rdzv-endpoint", 0, "HOST:PORT|unix:PATH", "", meeting, also_torchrun,
    "The nodes' meeting place, port " DLAUNCH_MEETING_PORT " by default: a dlaunchd, else the node "
    "that has this address; or the socket of a dlaunchd on this host."},
   take::any_text<&Draft::rdzv_endpoint>},
  {{"rdzv-id", 0, "ID", "", meeting, also_torchrun,
    "The job's id; needed with a dlaunchd, else made up."},
   take::by<&Draft::job_id, read_job_id>},
  {{"rdzv-role", 0, "auto|host|join", "auto", meeting, ours,
    "Whether this node hosts the rendezvous or joins it; auto: it hosts if it can bind the "
    "address."},
   take::choice<&Draft::rdzv_role, roles>},
  {{"rdzv-conf", 0, "K=V,...", rendezvous_times, meeting, also_torchrun,
    "How nodes wait for each other; times in seconds."}, rdzv_conf},
  {{"rdzv-backend", 0, "static|c10d|dlaunch", "static", meeting, also_torchrun,
    "All mean dlaunch's own."}, rdzv_backend},
  {{"secret-file", 0, "FILE", "", meeting, ours,
    "The job's secret, or the master key it is derived from; for its owner's eyes only. All "
    "nodes and the dlaunchd must have it."}, take::text<&Draft::secret_file>},
  {{"secret-credential", 0, "NAME", "", meeting, ours,
    "The same, from the service manager's credentials."}, take::text<&Draft::secret_credential>},
  {{"secret-fd", 0, "N", "", meeting, ours,
    "The same, from an open descriptor, which is read to its end."},
   take::number<&Draft::secret_fd, 3, descriptors_max>},
  {{"iface", 0, "NAME|CIDR", "", meeting, ours,
    "The interface that other nodes reach; default: the one that reaches the rendezvous."},
   take::text<&Draft::iface>},
  {{"local-addr", 0, "HOST", "", meeting, also_torchrun,
    "The address at which other nodes reach this one, where it is not one of its own."},
   host<&Draft::local_addr>},
  {{"standalone", 0, "", "0", meeting, also_torchrun,
    "One node, any free port; other rendezvous options are ignored."},
   take::flag<&Draft::standalone>},
  {{"master-addr", 0, "HOST", "127.0.0.1", meeting, also_torchrun,
    "Address of node rank 0, which then hosts the rendezvous; on one node always 127.0.0.1."},
   host<&Draft::master_addr>},
  {{"master-port", 0, "PORT", "29500", meeting, also_torchrun,
    "Port of the workers' store; 0 takes any. If the default is busy, another one is taken; "
    "if a given one is busy, that is an error."}, take::number<&Draft::master_port, 0, 65535>},
  {{"torch-store", 0, "agent|rank0", "agent", meeting, ours,
    "The server of PyTorch's store: dlaunch, or PyTorch in rank 0, which finds the port free."},
   take::choice<&Draft::torch_store, torch_stores>},

  {{"max-restarts", 0, "N", "0", failure, also_torchrun,
    "How often all workers are started again after a failure."},
   take::number<&Draft::max_restarts, 0, restarts_max>},
  {{"restart-window", 0, "TIME", "0", failure, ours,
    "Only restarts within the last TIME count against --max-restarts; 0: all do."},
   take::duration<&Draft::restart_window>},
  {{"restart-backoff", 0, "MIN[:MAX]", "100ms:10s", failure, ours,
    "The pause before a restart that follows a second failure soon after a start; it doubles with "
    "each further one, up to MAX. A run of MAX ends the row; 0: no pauses."},
   take::by<&Draft::restart_backoff, read_restart_backoff>},
  {{"on-failure", 0, "stop|continue", "stop", failure, ours,
    "Stop the other workers, or let programs that can shrink go on."},
   take::choice<&Draft::continue_on_failure, failures>},
  {{"failure-grace", 0, "TIME", "500ms", failure, ours,
    "How long survivors may report before they are stopped."},
   take::duration<&Draft::failure_grace>},
  {{"shutdown-timeout", 0, "TIME", "30", failure, also_torchrun,
    "From the first signal to SIGKILL."}, take::duration<&Draft::shutdown_timeout>},
  {{"stuck-after", 0, "TIME", "5", failure, ours,
    "Say which ranks a call has been waiting for, and what they do, after so long; 0: never. "
    "A program may set it for a communicator."}, take::duration<&Draft::stuck_after>},
  {{"straggler-notice", 0, "TIME", "20", failure, ours,
    "Say which workers still run so long after another one has exited with 0; 0: never."},
   take::duration<&Draft::straggler_notice>},
  {{"straggler-timeout", 0, "TIME", "0", failure, ours,
    "End the job, with 80, when a worker of this node has exited with 0 and others still run "
    "after so long; 0: never."}, take::duration<&Draft::straggler_timeout>},
  {{"ready-timeout", 0, "TIME", "0", failure, ours,
    "End the attempt, with 80, when a worker has neither passed World::init nor MPI_Init, nor "
    "reached PyTorch's store, so long after the start; 0: never."},
   take::duration<&Draft::ready_timeout>},
  {{"stall-timeout", 0, "TIME", "0", failure, ours,
    "End the attempt, with 80, when no rank of the job has made progress for so long: no call of "
    "libdlaunch began or ended, or, without the library, nothing was written or computed; only "
    "declared progress counts where there is any. 0: never."},
   take::duration<&Draft::stall_timeout>},
  {{"stack-on-timeout", 0, "", "0", failure, ours,
    "Before the workers are ended because a call, --straggler-timeout, --ready-timeout or "
    "--stall-timeout has timed out, write where they are (dlaunch stack) to attempt_<n>/stacks.txt "
    "below --log-dir, without it shortened to stderr."}, take::flag<&Draft::stack_on_timeout>},
  {{"node-check", 0, "COMMAND", "", failure, ours,
    "A command for sh that each node runs before each start of its workers; a node where it fails "
    "stays out. An elastic job goes on without the node, another ends with 79."},
   take::text<&Draft::node_check>},
  {{"node-check-timeout", 0, "TIME", "60", failure, ours,
    "How long the check may run; then it is killed, and has failed."},
   take::duration<&Draft::node_check_timeout>},
  {{"health-port", 0, "PORT|HOST:PORT", "", failure, ours,
    "Tell by HTTP whether this node's agent is alive (/healthz) and its workers run (/readyz), for "
    "probes of containers; without HOST at 127.0.0.1 only. 0: any port, which is told."},
   take::by<&Draft::health, read_health_at>},
  {{"deadline", 0, "TIME|DATE", "0", failure, ours,
    "Stop the job, with 75, so long after its start, or at a DATE such as 2026-11-23T14:00Z; "
    "default: 10 s before the end of the Slurm job; 0: never."},
   take::by<&Draft::deadline, read_deadline>},
  {{"deadline-latest", 0, "TIME|DATE", "0", failure, ours,
    "Workers that need more time to save their work may put the deadline off, up to then; default: "
    "10 s before the end of the Slurm job, else not at all."},
   take::by<&Draft::deadline_latest, read_deadline>},
  {{"deadline-notice", 0, "TIME", "60", failure, ours,
    "How long before the deadline workers that catch --deadline-signal get it; 0: never."},
   take::duration<&Draft::deadline_notice>},
  {{"deadline-signal", 0, "SIGNAL", "SIGUSR1", failure, ours,
    "The signal that tells workers of the deadline, so that they can save their work."},
   take::by<&Draft::deadline_signal, read_signal>},
  {{"signals-to-handle", 0, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", failure, also_torchrun,
    "Signals that end the job; all go to every worker."}, take::by<&Draft::signals, read_signals>},
  {{"monitor-interval", 0, "TIME", "0.1", failure, also_torchrun,
    "dlaunch hears of a worker's end at once.",
    "a worker's end is seen at once"}, ignored_duration},

  {{"log-dir", 0, "DIR", "", output, also_torchrun,
    "Below it: <job>_<random>/attempt_<n>/<rank>/."}, take::text<&Draft::log_dir>},
  {{"redirects", 'r', "STREAMS", "0", output, also_torchrun,
    "To log files instead of the console: 0 none, 1 stdout, 2 stderr, 3 both, or by local "
    "rank: 0:1,1:2."}, take::by<&Draft::redirects, read_streams>},
  {{"tee", 't', "STREAMS", "0", output, also_torchrun,
    "To log files and the console, written likewise."}, take::by<&Draft::tee, read_streams>},
  {{"local-ranks-filter", 0, "R,R...", "", output, also_torchrun,
    "Only these local ranks are shown on the console."},
   take::by<&Draft::local_ranks_filter, read_ranks>},
  {{"log-line-prefix-template", 0, "TEXT", "", output, also_torchrun,
    "Before each line: ${role_name} ${local_rank} ${rank} ${hostname}; default: '[${rank}] ' "
    "where there are several workers, '[${hostname}:${rank}] ' where there are several nodes."},
   take::any_text<&Draft::log_line_prefix_template>},
  {{"result", 0, "FILE", "", output, ours,
    "Write the whole story of the job as JSON."}, take::text<&Draft::result_file>},
  {{"flight-file", 0, "FILE", "", output, ours,
    "Write every rank's last calls to FILE when an attempt fails, and only then; with "
    "--log-dir also without this, to attempt_<n>/flight.json. For a job that runs: dlaunch "
    "status --flight."}, take::text<&Draft::flight_file>},
  {{"quiet", 0, "", "0", output, ours,
    "Print nothing but the program's own output, the failure summary, and errors that it does not "
    "tell."}, take::flag<&Draft::quiet>},
  {{"log-format", 0, "text|json", "text", output, ours,
    "How dlaunch's own lines are written; json: each as one object with time, level, message, job "
    "and node."}, take::choice<&Draft::log_format, log_formats>},
  {{"timings", 0, "none|text|json", "none", output, ours,
    "Say at the end how long each phase of the launch took, as a line or as a JSON object; --result "
    "has them always."}, take::choice<&Draft::timings, timings>},
  {{"duplicate-stdout-filters", 0, "WORD,WORD...", "", output, also_torchrun,
    "Lines of stdout with any of these words go to attempt_<n>/filtered_stdout.log, too; ,, "
    "is a comma."}, take::by<&Draft::stdout_filters, read_words>},
  {{"duplicate-stderr-filters", 0, "WORD,WORD...", "", output, also_torchrun,
    "The same for stderr."}, take::by<&Draft::stderr_filters, read_words>},
  {{"event-log-handler", 0, "NAME", "null", output, also_torchrun,
    "A Python entry point of torchrun's.",
    "there is no Python in the launcher"}, take::nothing},
  {{"logs-specs", 0, "NAME", "", output, also_torchrun,
    "A Python entry point of torchrun's.",
    "there is no Python in the launcher"}, take::nothing},

  {{"config", 0, "FILE", "", information, not_in_file,
    "Options from a TOML file, keys named as the flags."}, take::nothing},
  {{"dry-run", 0, "", "0", information, ours,
    "Print the resolved plan and where each value came from."}, take::flag<&Draft::dry_run>},
  {{"help", 'h', "", "", information, {},
    "Print a few examples; --help all: all options, --help output: those of one group."}, nullptr},
  {{"version", 0, "", "", information, {}, "Print the version."}, nullptr},
});
// clang-format on

/// "NPROC_PER_NODE" against "nproc-per-node", without making a string.
bool is_variable_of(std::string_view upper, std::string_view flag) {
  return upper.size() == flag.size() &&
         std::equal(upper.begin(), upper.end(), flag.begin(), [](char u, char f) {
           return f == '-' ? u == '_' : u == std::toupper(static_cast<unsigned char>(f));
         });
}

}  // namespace

std::span<const OptionRow<Draft>> option_rows() { return rows; }

const OptionTable& option_table() {
  static const OptionTable table(
      "dlaunch",
      "Usage: dlaunch [options] [--] program [args...]\n"
      "\n"
      "Starts a program several times and lets the processes find each other.\n"
      "A program named *.py runs under $PYTHON_EXEC or python3.\n",
      rows,
      {"A ':' divides the line: behind it stands another program, for workers of its own, with "
       "options of its own: --nproc-per-node, --env, --cwd and those of the program. An argument "
       "':' is written '\\:'.",
       "Options may be written with dashes or underscores. An option that is not given is taken "
       "from the variable DLAUNCH_<OPTION>, then (torchrun's options) from PET_<OPTION>, then from "
       "--config. TIME is 500ms, 30 (seconds), 2m or 1h."},
      brief_help());
  return table;
}

const Option* option_of_variable(std::string_view name) {
  const bool pet = name.starts_with("PET_");
  if (!pet && !name.starts_with("DLAUNCH_")) return nullptr;
  name.remove_prefix(pet ? 4 : 8);
  for (const auto& [option, apply] : rows) {
    const bool counts = pet ? option.traits.pet : option.traits.variable;
    if (counts && is_variable_of(name, option.flag)) return &option;
  }
  return nullptr;
}

std::string nearest_variable(std::string_view name) {
  constexpr auto others = std::to_array<std::string_view>(
      {"DLAUNCH_TABLE", "DLAUNCH_CUDA_LIBRARY", "DLAUNCH_NCCL_LIBRARY"});
  const bool pet = name.starts_with("PET_");
  if ((!pet && !name.starts_with("DLAUNCH_")) || name.starts_with("DLAUNCH_WORKER_") ||
      std::find(others.begin(), others.end(), name) != others.end()) {
    return {};
  }
  std::string flag(name.substr(pet ? 4 : 8));
  std::transform(flag.begin(), flag.end(), flag.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::vector<std::string_view> flags;
  for (const auto& [option, apply] : rows) {
    if (option.traits.variable) flags.push_back(option.flag);
  }
  const auto meant = nearest_word(flag, flags);
  if (meant.empty()) return {};
  std::string variable = pet && option_table().find(meant)->traits.pet ? "PET_" : "DLAUNCH_";
  for (const char c : meant) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

}  // namespace dlaunch::launcher
