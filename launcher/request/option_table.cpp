#include "launcher/request/option_table.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace dlaunch::launcher {

namespace {

using Result = std::optional<Complaint>;

constexpr long workers_max = 4096;
constexpr long restarts_max = 1'000'000;
constexpr long node_ranks_max = 100'000;
constexpr long ranks_max = 10'000'000;
constexpr long descriptors_max = 1'000'000;

/// Stores what was read, or hands the complaint on.
template <class T, class Target>
Result store(Read<T>&& read, Target& target) {
  if (auto* complaint = std::get_if<Complaint>(&read)) return std::move(*complaint);
  target = static_cast<Target>(std::get<T>(std::move(read)));
  return std::nullopt;
}

Result store_text(std::string_view value, std::string& target) {
  if (value.empty()) return Complaint{"the value is empty"};
  target = value;
  return std::nullopt;
}

Result store_duration(std::string_view value, std::chrono::milliseconds& target) {
  const auto read = parse_duration(value);
  if (!read) {
    return Complaint{in_quotes(value) +
                     " is not a duration such as 500ms, 30 (seconds), 2m or 1h, up to a year"};
  }
  target = *read;
  return std::nullopt;
}

Result store_choice(std::string_view value, std::initializer_list<std::string_view> choices,
                    std::string* target) {
  if (std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return Complaint{in_quotes(value) + " is none of " + joined(choices)};
  }
  if (target != nullptr) *target = value;
  return std::nullopt;
}

Result worker_number(Draft& draft, std::string_view value) {
  using Kind = WorkersAsked::Kind;
  auto& asked = draft.options.workers;
  if (value == "cpu") return asked.kind = Kind::cpu, std::nullopt;
  if (value == "gpu") return asked.kind = Kind::gpu, std::nullopt;
  if (value == "auto") return asked.kind = Kind::automatic, std::nullopt;
  asked.kind = Kind::number;
  auto complaint = store(read_integer(value, 1, workers_max), asked.number);
  if (complaint && !value.empty() && !std::isdigit(static_cast<unsigned char>(value.front())) &&
      value.front() != '-') {
    return Complaint{in_quotes(value) + " is neither a number nor cpu, gpu or auto"};
  }
  return complaint;
}

Result on_failure(Draft& draft, std::string_view value) {
  std::string chosen;
  auto complaint = store_choice(value, {"stop", "continue"}, &chosen);
  draft.options.continue_on_failure = chosen == "continue";
  return complaint;
}

Result numa_binding(Draft& draft, std::string_view value) {
  auto& mode = draft.options.numa_binding;
  if (value == "node") return mode = NumaBinding::node, std::nullopt;
  if (value == "socket") return mode = NumaBinding::socket, std::nullopt;
  if (value == "exclusive") return mode = NumaBinding::exclusive, std::nullopt;
  mode = NumaBinding::core_complex;
  return store_choice(value, {"node", "socket", "exclusive", "core-complex"}, nullptr);
}

Result rdzv_backend(Draft&, std::string_view value) {
  if (value.starts_with("etcd")) {
    return Complaint{"dlaunch brings its own rendezvous and needs no etcd; leave it out"};
  }
  return store_choice(value, {"static", "c10d", "dlaunch"}, nullptr);
}

/// It becomes part of paths and of socket names.
Result job_id(Draft& draft, std::string_view value) {
  constexpr std::size_t id_max = 128;
  if (value.size() > id_max) return Complaint{"at most 128 characters are allowed"};
  const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || (c != 0 && std::strchr(".,:;@%+=_-", c));
  });
  if (!plain || value == "." || value == "..") {
    return Complaint{"only letters, digits and .,:;@%+=_- are allowed"};
  }
  return store_text(value, draft.options.job_id.emplace());
}

Result node_rank(Draft& draft, std::string_view value) {
  return store(read_integer(value, 0, node_ranks_max), draft.options.node_rank.emplace());
}

Result stdin_rank(Draft& draft, std::string_view value) {
  auto& rank = draft.options.stdin_rank;
  if (value == "none") return rank.reset(), std::nullopt;
  auto complaint = store(read_integer(value, 0, ranks_max), rank.emplace());
  if (complaint) return Complaint{in_quotes(value) + " is neither a rank nor none"};
  return complaint;
}

Result rdzv_role(Draft& draft, std::string_view value) {
  std::string chosen;
  auto complaint = store_choice(value, {"auto", "host", "join"}, &chosen);
  using enum RendezvousRole;
  draft.options.rdzv_role = chosen == "host" ? host : chosen == "join" ? join : automatic;
  return complaint;
}

Result rdzv_conf(Draft& draft, std::string_view value) {
  std::vector<std::string> unused;
  auto complaint = store(read_rendezvous_conf(value, draft.options.rdzv_times, unused),
                         draft.options.rdzv_times);
  for (const auto& key : unused) {
    draft.options.notes.push_back("--rdzv-conf " + key +
                                  " has no effect: dlaunch does not need it.");
  }
  return complaint;
}

Result no_check(Draft&, std::string_view) { return std::nullopt; }

template <bool Options::*Member>
Result flag(Draft& draft, std::string_view value) {
  return store(read_flag(value), draft.options.*Member);
}
template <std::string Options::*Member>
Result text(Draft& draft, std::string_view value) {
  return store_text(value, draft.options.*Member);
}
template <std::string Options::*Member>
Result host(Draft& draft, std::string_view value) {
  if (auto complaint = check_host(value)) return complaint;
  return store_text(value, draft.options.*Member);
}
template <std::optional<std::string> Options::*Member>
Result optional_text(Draft& draft, std::string_view value) {
  return store_text(value, (draft.options.*Member).emplace());
}
template <std::chrono::milliseconds Options::*Member>
Result duration(Draft& draft, std::string_view value) {
  return store_duration(value, draft.options.*Member);
}
template <StreamsByRank Options::*Member>
Result streams(Draft& draft, std::string_view value) {
  return store(read_streams(value), draft.options.*Member);
}

template <std::vector<std::string> Options::*Member>
Result words(Draft& draft, std::string_view value) {
  return store(read_words(value), draft.options.*Member);
}

using enum Section;
constexpr bool also_torchrun = true;
constexpr bool ours = false;
constexpr std::string_view works;

// clang-format off
constexpr auto table = std::to_array<OptionEntry>({
  {"module", 'm', "", "0", program, also_torchrun, works,
   "The program is a Python module, run by python -m.", flag<&Options::module>},
  {"no-python", 0, "", "0", program, also_torchrun, works,
   "Run a .py program as it is, without the interpreter.", flag<&Options::no_python>},
  {"run-path", 0, "", "0", program, also_torchrun, works,
   "Run the program under Python, whatever its name.", flag<&Options::run_path>},

  {"nproc-per-node", 0, "N|cpu|gpu|auto", "1", workers, also_torchrun, works,
   "Workers on this node: a number, one per usable core, one per GPU, or per GPU where there is "
   "one, else per core.", worker_number},
  {"role", 0, "NAME", "default", workers, also_torchrun, works,
   "What the workers are, for ROLE_NAME and line prefixes.", text<&Options::role>},
  {"virtual-local-rank", 0, "", "0", workers, also_torchrun, works,
   "Each worker sees one GPU only and has LOCAL_RANK 0.", flag<&Options::virtual_local_rank>},
  {"stdin", 0, "RANK|none", "0", workers, ours, works,
   "The rank that reads our standard input, from a terminal, too; the others have none.",
   stdin_rank},
  {"numa-binding", 0, "MODE", "", workers, also_torchrun, works,
   "Bind each worker to the cores of a NUMA node, of a socket, to a part of a node of its own, or to "
   "cores that share a cache: node, socket, exclusive or core-complex; beside its GPU where each "
   "has one.", numa_binding},
  {"start-method", 0, "METHOD", "spawn", workers, also_torchrun,
   "workers are programs of their own, never forks of the launcher",
   "spawn, fork or forkserver.",
   [](Draft&, std::string_view v) {
     return store_choice(v, {"spawn", "fork", "forkserver"}, nullptr); }},

  {"nnodes", 0, "N|MIN:MAX", "1:1", meeting, also_torchrun, works,
   "Number of nodes; the same line is started on each.",
   [](Draft& d, std::string_view v) { return store(read_nodes(v), d.options.nodes); }},
  {"node-rank", 0, "R", "", meeting, also_torchrun, works,
   "This node's place among the nodes; default: decided where they meet.", node_rank},
  {"node-id", 0, "NAME", "", meeting, ours, works,
   "This node's name, unique in the job; default: the host's, with what makes it unique.",
   text<&Options::node_id>},
  {"rdzv-endpoint", 0, "HOST:PORT", "", meeting, also_torchrun, works,
   "Where nodes meet, port 29400 by default: at a dlaunchd, else at the node that has this "
   "address.",
   [](Draft& d, std::string_view v) -> Result { d.options.rdzv_endpoint = v; return {}; }},
  {"rdzv-id", 0, "ID", "", meeting, also_torchrun, works,
   "The job's id; needed with a dlaunchd, else made up.", job_id},
  {"rdzv-role", 0, "ROLE", "auto", meeting, ours, works,
   "host, join or auto: who hosts the rendezvous; auto: who can bind its address.", rdzv_role},
  {"rdzv-conf", 0, "K=V,...", "", meeting, also_torchrun, works,
   "join_timeout (600), last_call_timeout (30), keep_alive_interval (1) and "
   "keep_alive_max_attempt (5), times in seconds.", rdzv_conf},
  {"rdzv-backend", 0, "NAME", "static", meeting, also_torchrun, works,
   "static, c10d or dlaunch: all mean dlaunch's own.", rdzv_backend},
  {"secret-file", 0, "FILE", "", meeting, ours, works,
   "The job's secret, or the master key it is derived from; for its owner's eyes only. All nodes "
   "and the dlaunchd must have it.", text<&Options::secret_file>},
  {"secret-credential", 0, "NAME", "", meeting, ours, works,
   "The same, from the service manager's credentials.", text<&Options::secret_credential>},
  {"secret-fd", 0, "N", "", meeting, ours, works,
   "The same, from an open descriptor, which is read to its end.",
   [](Draft& d, std::string_view v) {
     return store(read_integer(v, 3, descriptors_max), d.options.secret_fd.emplace()); }},
  {"iface", 0, "NAME|CIDR", "", meeting, ours, works,
   "The interface that other nodes reach; default: the one that reaches the rendezvous.",
   text<&Options::iface>},
  {"local-addr", 0, "HOST", "", meeting, also_torchrun, works,
   "The address at which other nodes reach this one, where it is not one of its own.",
   host<&Options::local_addr>},
  {"standalone", 0, "", "0", meeting, also_torchrun, works,
   "One node, any free port; other rendezvous options are ignored.", flag<&Options::standalone>},
  {"master-addr", 0, "HOST", "127.0.0.1", meeting, also_torchrun, works,
   "Where node rank 0 is, which then hosts the rendezvous; on one node always 127.0.0.1.",
   host<&Options::master_addr>},
  {"master-port", 0, "PORT", "29500", meeting, also_torchrun, works,
   "Port of the workers' store; 0 takes any. If the default is busy, another one is taken; "
   "if a given one is busy, that is an error.",
   [](Draft& d, std::string_view v) { return store(read_integer(v, 0, 65535), d.options.master_port); }},

  {"max-restarts", 0, "N", "0", failure, also_torchrun, works,
   "How often all workers are started again after a failure.",
   [](Draft& d, std::string_view v) {
     return store(read_integer(v, 0, restarts_max), d.options.max_restarts); }},
  {"on-failure", 0, "stop|continue", "stop", failure, ours, works,
   "Stop the other workers, or let programs that can shrink go on.", on_failure},
  {"failure-grace", 0, "TIME", "500ms", failure, ours, works,
   "How long survivors may report before they are stopped.", duration<&Options::failure_grace>},
  {"shutdown-timeout", 0, "TIME", "30", failure, also_torchrun, works,
   "From the first signal to SIGKILL.", duration<&Options::shutdown_timeout>},
  {"stuck-after", 0, "TIME", "5", failure, ours, works,
   "Say which ranks a call has been waiting for, and what they do, after so long; 0: never. A "
   "program may set it for a communicator.",
   duration<&Options::stuck_after>},
  {"straggler-notice", 0, "TIME", "20", failure, ours, works,
   "Say which workers still run so long after another one has exited with 0; 0: never.",
   duration<&Options::straggler_notice>},
  {"straggler-timeout", 0, "TIME", "0", failure, ours, works,
   "End the job, with 80, when a worker of this node has exited with 0 and others still run after "
   "so long; 0: never.", duration<&Options::straggler_timeout>},
  {"signals-to-handle", 0, "LIST", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", failure, also_torchrun, works,
   "Signals that end the job; all go to every worker.",
   [](Draft& d, std::string_view v) { return store(read_signals(v), d.options.signals); }},
  {"monitor-interval", 0, "TIME", "0.1", failure, also_torchrun,
   "a worker's end is seen at once",
   "dlaunch hears of a worker's end at once.",
   [](Draft&, std::string_view v) { std::chrono::milliseconds d; return store_duration(v, d); }},

  {"log-dir", 0, "DIR", "", output, also_torchrun, works,
   "Below it: <job>_<random>/attempt_<n>/<rank>/.", optional_text<&Options::log_dir>},
  {"redirects", 'r', "STREAMS", "0", output, also_torchrun, works,
   "To log files instead of the console: 0 none, 1 stdout, 2 stderr, 3 both, or by local rank: "
   "0:1,1:2.", streams<&Options::redirects>},
  {"tee", 't', "STREAMS", "0", output, also_torchrun, works,
   "To log files and the console, written likewise.", streams<&Options::tee>},
  {"local-ranks-filter", 0, "R,R...", "", output, also_torchrun, works,
   "Only these local ranks are shown on the console.",
   [](Draft& d, std::string_view v) { return store(read_ranks(v), d.options.local_ranks_filter); }},
  {"log-line-prefix-template", 0, "TEXT", "", output, also_torchrun, works,
   "Before each line: ${role_name} ${local_rank} ${rank} ${hostname}; default: '[${rank}] ' where "
   "there are several workers.",
   [](Draft& d, std::string_view v) -> Result { d.options.log_line_prefix_template = v; return {}; }},
  {"result", 0, "FILE", "", output, ours, works,
   "Write the whole story of the job as JSON.", optional_text<&Options::result_file>},
  {"flight-file", 0, "FILE", "", output, ours, works,
   "Where to write every rank's last calls when an attempt fails, and only then; with --log-dir "
   "also without this, to attempt_<n>/flight.json. For a job that runs: dlaunch status --flight.",
   optional_text<&Options::flight_file>},
  {"duplicate-stdout-filters", 0, "WORD,WORD...", "", output, also_torchrun, works,
   "Lines of stdout with any of these words go to attempt_<n>/filtered_stdout.log, too; ,, is a "
   "comma.", words<&Options::stdout_filters>},
  {"duplicate-stderr-filters", 0, "WORD,WORD...", "", output, also_torchrun, works,
   "The same for stderr.", words<&Options::stderr_filters>},
  {"event-log-handler", 0, "NAME", "null", output, also_torchrun,
   "there is no Python in the launcher",
   "A Python entry point of torchrun's.", no_check},
  {"logs-specs", 0, "NAME", "", output, also_torchrun,
   "there is no Python in the launcher",
   "A Python entry point of torchrun's.", no_check},

  {"config", 0, "FILE", "", information, ours, works,
   "Options from a TOML file, keys named as the flags.", no_check},
  {"dry-run", 0, "", "0", information, ours, works,
   "Print the resolved plan and where each value came from.", flag<&Options::dry_run>},
  {"help", 'h', "", "", information, ours, works, "Print this.", nullptr},
  {"version", 0, "", "", information, ours, works, "Print the version.", nullptr},
});
// clang-format on

char fold(char c) { return c == '_' ? '-' : c; }

bool same_flag(std::string_view a, std::string_view b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(),
                                            [](char x, char y) { return fold(x) == fold(y); });
}

/// "NPROC_PER_NODE" against "nproc-per-node", without making a string.
bool is_variable_of(std::string_view upper, std::string_view flag) {
  return upper.size() == flag.size() &&
         std::equal(upper.begin(), upper.end(), flag.begin(), [](char u, char f) {
           return f == '-' ? u == '_' : u == std::toupper(static_cast<unsigned char>(f));
         });
}

}  // namespace

std::span<const OptionEntry> option_table() { return table; }

const OptionEntry* find_option(std::string_view flag) {
  for (const auto& entry : table) {
    if (same_flag(entry.flag, flag)) return &entry;
  }
  return nullptr;
}

const OptionEntry* find_option(char letter) {
  for (const auto& entry : table) {
    if (entry.letter != 0 && entry.letter == letter) return &entry;
  }
  return nullptr;
}

std::string nearest_option(std::string_view flag) {
  constexpr std::size_t flag_max = 40;
  if (flag.size() > flag_max) return {};
  // Other launchers call it so.
  for (const auto name : {"n", "np", "nproc", "num-procs", "ntasks", "ntasks-per-node"}) {
    if (same_flag(flag, name)) return "--nproc-per-node";
  }
  std::string folded(flag);
  std::transform(folded.begin(), folded.end(), folded.begin(), fold);
  const OptionEntry* best = nullptr;
  std::size_t best_distance = std::max<std::size_t>(2, flag.size() / 3) + 1;
  for (const auto& entry : table) {
    // A user who abbreviates means the first option that begins so.
    const bool abbreviated = folded.size() >= 3 && entry.flag.starts_with(folded);
    const std::size_t distance = abbreviated ? 1 : edit_distance(folded, entry.flag);
    if (distance >= best_distance || distance >= std::max(folded.size(), std::size_t{1})) continue;
    best = &entry;
    best_distance = distance;
  }
  return best == nullptr ? "" : "--" + std::string(best->flag);
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
  for (const auto& entry : table) flags.push_back(entry.flag);
  const OptionEntry* meant = find_option(nearest_word(flag, flags));
  if (meant == nullptr) return {};
  std::string variable = pet && meant->torchrun ? "PET_" : "DLAUNCH_";
  for (const char c : meant->flag) {
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

bool is_flag_variable(std::string_view name) {
  const bool pet = name.starts_with("PET_");
  if (!pet && !name.starts_with("DLAUNCH_")) return false;
  name.remove_prefix(pet ? 4 : 8);
  return std::any_of(std::begin(table), std::end(table), [&](const OptionEntry& entry) {
    return (entry.torchrun || !pet) && is_variable_of(name, entry.flag);
  });
}

}  // namespace dlaunch::launcher
