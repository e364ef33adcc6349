#include "launcher/request/resolve.hpp"

#include "launcher/request/meeting.hpp"
#include "launcher/request/option_values.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::launcher {

namespace {

/// Turns one request into a job. Every step returns what ends it early, or nothing.
class Resolver {
 public:
  using Stop = std::optional<EarlyExit>;

  Resolver(const Request& request, const LaunchContext& context)
      : given_(request.options), request_(request), context_(context) {}

  Stop read_values() {
    draft_.notes = request_.notes;
    if (auto stop = given_.apply(option_rows(), draft_)) return stop;
    draft_.settings = given_.settings();
    draft_.scheduler_job = request_.scheduler_job;
    draft_.deadline.by_scheduler = given_.of("deadline").origin == Origin::scheduler;
    draft_.failure_grace_given = given_.has("failure-grace");
    draft_.master_port_insisted = given_.has("master-port") && draft_.master_port != 0;
    for (const Option* option : option_table().options()) {
      if (!option->no_effect.empty()) note_unused(option->flag, option->no_effect);
    }
    return std::nullopt;
  }

  Stop choose_programs() {
    draft_.bench = request_.bench;
    draft_.program = request_.program;
    if (request_.bench) {
      draft_.program.insert(draft_.program.begin(), context_.bench_program);
      // The benchmark's table gets no prefixes.
      if (!given_.has("log-line-prefix-template")) draft_.log_line_prefix_template = "";
      return std::nullopt;
    }
    if (auto stop = choose_part(given_, draft_)) return stop;
    for (const auto& [options, program] : request_.later_parts) {
      Draft part;
      const std::size_t number = draft_.later_parts.size() + 2;
      if (auto stop = options.apply(option_rows(), part)) return of_later_part(*stop, number);
      part.program = program;
      if (auto stop = choose_part(options, part)) return of_later_part(*stop, number);
      draft_.later_parts.push_back(std::move(part));
    }
    return std::nullopt;
  }

  /// --bind and --numa-binding are two names of one thing.
  Stop choose_binding() {
    const Origin bind = given_.of("bind").origin, numa = given_.of("numa-binding").origin;
    if (bind == numa && given_.has("bind")) {
      return option_table().refuse(exit_code::usage,
                                   given_.as_written("bind") + " and " +
                                       given_.as_written("numa-binding") +
                                       " exclude each other: both say on which cores workers run");
    }
    const bool stronger = bind < numa;
    draft_.binding = stronger ? draft_.bind : draft_.numa_binding;
    draft_.binding_flag = stronger ? "bind" : "numa-binding";
    return std::nullopt;
  }

  Stop choose_hosts() {
    if (!given_.has("hosts") && !given_.has("hostfile")) {
      note_unused("ssh", "no hosts are named");
      return std::nullopt;
    }
    const std::string_view flag = given_.has("hosts") ? "hosts" : "hostfile";
    if (given_.has("hosts") && given_.has("hostfile")) {
      return option_table().refuse(
          exit_code::usage, given_.as_written("hosts") + " and " + given_.as_written("hostfile") +
                                " exclude each other: both name the hosts");
    }
    auto read = read_hosts(flag == "hosts" ? draft_.hosts_text : *request_.hostfile);
    if (auto* complaint = std::get_if<Complaint>(&read)) {
      return given_.refuse(flag, complaint->sentence);
    }
    draft_.hosts = std::get<0>(std::move(read));
    if (context_.directory.empty()) {
      return given_.refuse(flag, "where dlaunch was started is not known, and would be said to " +
                                     std::string("the hosts"));
    }
    for (const auto& [other, why] :
         {std::pair{"standalone", "it is one node, and hosts are named"},
          std::pair{"node-id", "each host has a name of its own"},
          std::pair{"local-addr", "each host has an address of its own"},
          std::pair{"spares", "each host that is named has a place in the job"}}) {
      if (given_.has(other)) return given_.refuse(other, std::string(why) + " (--hosts)");
    }
    if (draft_.stdin_rank) note_unused("stdin", "no rank reads it from another host");
    if (!given_.has("nnodes")) {
      draft_.nodes.least = draft_.nodes.most = static_cast<int>(draft_.hosts.size());
    }
    const bool counted = std::any_of(draft_.hosts.begin(), draft_.hosts.end(),
                                     [](const auto& host) { return host.workers.has_value(); });
    if (!counted || draft_.later_parts.empty()) return std::nullopt;
    return given_.refuse(flag,
                         "with several programs each says by --nproc-per-node how many "
                         "workers it has on each host; leave out the numbers");
  }

  Stop choose_meeting() {
    if (!draft_.hosts.empty()) return std::nullopt;  // Each agent finds it on its own line.

    const auto decided = meeting_of(draft_, given_.has("master-addr"));
    if (const auto* problem = std::get_if<MeetingProblem>(&decided)) {
      return table_refusal(*problem);
    }
    draft_.meeting = std::get<Meeting>(decided);
    if (draft_.standalone) {
      for (const std::string_view flag : {"rdzv-id", "rdzv-endpoint", "rdzv-backend"}) {
        note_unused(flag, "--standalone sets it");
      }
      draft_.job_id.reset();
      if (!given_.has("master-port")) draft_.master_port = 0;
    }
    if (draft_.meeting.kind != Meeting::Kind::one_node) return std::nullopt;
    if (!is_loopback_name(draft_.master_addr)) {
      note_unused("master-addr", "on one node the workers meet at 127.0.0.1");
    }
    note_unused("rdzv-conf", "there is nothing to agree on with one node");
    note_unused("spares", "no other node takes part");
    note_unused("local-addr", "no other node has to reach this one");
    note_unused("iface", "no other node has to reach this one");
    for (const auto* flag : {"secret-file", "secret-credential", "secret-fd"}) {
      note_unused(flag, "no other node takes part");
    }
    return std::nullopt;
  }

  JobSpec finish() {
    if (draft_.ends_with_stdin && draft_.hosts.empty() && draft_.stdin_rank) {
      note_unused("stdin", "dlaunch itself waits for its end (--ends-with-stdin)");
      draft_.stdin_rank.reset();
    }
    std::string names;
    std::erase_if(draft_.signals, [&](int number) {
      const auto& ignored = context_.ignored_signals;
      if (std::find(ignored.begin(), ignored.end(), number) == ignored.end()) return false;
      draft_.signals_ignored.push_back(number);
      names += (names.empty() ? "" : ", ") + signal_name(number);
      return true;
    });
    if (given_.has("signals-to-handle") && !names.empty()) {
      draft_.notes.push_back(
          "--signals-to-handle " + names +
          " has no effect: it was ignored when dlaunch was started, and stays so.");
    }
    return std::move(draft_);
  }

 private:
  Stop choose_part(const GivenOptions& given, Part& part) {
    const auto refuse = [](std::string_view sentence) {
      return option_table().refuse(exit_code::usage, sentence);
    };
    if (part.program.empty()) {
      return refuse(part.module ? "-m needs the name of a module: dlaunch -m MODULE [args...]"
                                : "no program given: dlaunch [options] [--] program [args...]; "
                                  "dlaunch --help has examples");
    }
    if (part.program.front().empty()) return refuse("the program's name is empty");
    if (part.module && part.no_python) {
      return refuse("-m and --no-python exclude each other: a module needs the interpreter");
    }
    if (part.module && part.run_path) {
      return refuse("-m and --run-path exclude each other: the program is a module or a path");
    }
    if (part.directory.empty()) return std::nullopt;
    if (context_.directory.empty() && !part.directory.starts_with('/')) {
      return given.refuse("cwd", "where dlaunch was started is not known; give a whole path");
    }
    part.directory = whole(part.directory);
    // Workers are told where they may leave their error files.
    if (draft_.log_dir && !context_.directory.empty()) draft_.log_dir = whole(*draft_.log_dir);
    return std::nullopt;
  }

  std::string whole(const std::string& path) const {
    return path.starts_with('/') ? path : context_.directory + "/" + path;
  }

  /// Options that do not go together are an error of usage, even if one of them stands in the file.
  EarlyExit table_refusal(const MeetingProblem& problem) const {
    return option_table().refuse(exit_code::usage,
                                 given_.as_written(problem.flag) + ": " + problem.sentence);
  }

  /// Says that an option, where it was given, changes nothing.
  void note_unused(std::string_view flag, std::string_view why) {
    if (!given_.has(flag)) return;
    draft_.notes.push_back(given_.as_written(flag) + " has no effect: " + std::string(why) + ".");
  }

  const GivenOptions& given_;
  const Request& request_;
  const LaunchContext& context_;
  Draft draft_;
};

}  // namespace

EarlyExit of_later_part(EarlyExit stop, std::size_t number) {
  if (stop.code == 0 || !stop.text.ends_with('\n')) return stop;
  stop.text.pop_back();
  stop.text += " (in part " + std::to_string(number) +
               " of the line, behind ':'; an argument ':' is written '\\:')\n";
  return stop;
}

std::variant<JobSpec, EarlyExit> resolve(const Request& request, const LaunchContext& context) {
  Resolver resolver(request, context);
  if (auto stop = resolver.read_values()) return *stop;
  if (auto stop = resolver.choose_programs()) return *stop;
  if (auto stop = resolver.choose_binding()) return *stop;
  if (auto stop = resolver.choose_hosts()) return *stop;
  if (auto stop = resolver.choose_meeting()) return *stop;
  return resolver.finish();
}

std::vector<const Part*> JobSpec::parts() const {
  std::vector<const Part*> all = {this};
  for (const Part& part : later_parts) all.push_back(&part);
  return all;
}

Streams StreamsByRank::of(int local_rank) const {
  const auto found = listed.find(local_rank);
  return found == listed.end() ? everyone : found->second;
}

}  // namespace dlaunch::launcher
