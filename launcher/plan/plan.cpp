#include "launcher/plan/plan.hpp"

#include "launcher/plan/binding.hpp"
#include "launcher/plan/environment.hpp"
#include "runtime/base/exit_code.hpp"

#include <algorithm>
#include <cctype>
#include <set>

namespace dlaunch::launcher {

namespace {

EarlyExit refuse(std::string sentence) {
  return {.code = exit_code::usage, .text = "dlaunch: " + std::move(sentence) + "\n"};
}

/// Refuses an option that names a local rank beyond the last one.
std::optional<EarlyExit> check_ranks(const JobSpec& spec, int count) {
  const auto wrong = [&](std::string_view flag, int rank) {
    return refuse("--" + std::string(flag) + ": there is no local rank " + std::to_string(rank) +
                  ", with " + std::to_string(count) + (count == 1 ? " worker" : " workers") +
                  " the last one is " + std::to_string(count - 1));
  };
  for (const auto& [flag, streams] :
       {std::pair{"redirects", &spec.redirects}, std::pair{"tee", &spec.tee}}) {
    if (streams->listed.empty()) continue;
    const int last = streams->listed.rbegin()->first;
    if (last >= count) return wrong(flag, last);
  }
  const int input = spec.stdin_rank.value_or(0);
  if (spec.nodes.most == 1 && input >= count) {
    return refuse("--stdin " + std::to_string(input) + ": there is no rank " +
                  std::to_string(input) + ", the last one is " + std::to_string(count - 1));
  }
  const auto& shown = spec.local_ranks_filter;
  if (!shown.empty() && shown.back() >= count) return wrong("local-ranks-filter", shown.back());
  return std::nullopt;
}

/// The reason why CUDA shows none of this host's GPUs.
std::string hidden_gpus(std::span<const std::string> environment) {
  return "CUDA_VISIBLE_DEVICES=" +
         std::string(lookup(environment, "CUDA_VISIBLE_DEVICES").value_or("")) +
         " hides all GPUs of this host";
}

StreamPlan plan_stream(bool redirected, bool teed, bool shown, const std::string& directory,
                       std::string_view name) {
  StreamPlan plan;
  // Without a place for files the output goes to the console, so that none is lost.
  plan.console = shown && (teed || !redirected || directory.empty());
  if ((redirected || teed) && !directory.empty()) plan.file = directory + "/" + std::string(name);
  return plan;
}

StdioPlan plan_stdio(const JobSpec& spec, const Assignment& assignment, std::string_view hostname,
                     int local_rank, const std::string& directory) {
  const Streams redirects = spec.redirects.of(local_rank);
  const Streams tee = spec.tee.of(local_rank);
  const auto& filter = spec.local_ranks_filter;
  const bool shown = filter.empty() || std::binary_search(filter.begin(), filter.end(), local_rank);

  StdioPlan plan;
  plan.out = plan_stream(redirects.out, tee.out, shown, directory, "stdout.log");
  plan.err = plan_stream(redirects.err, tee.err, shown, directory, "stderr.log");
  if (!directory.empty() && shown) {
    // torchrun filters what it tees, and nothing else.
    const bool all = !spec.tee.any();
    plan.out.filtered = !spec.stdout_filters.empty() && (all || tee.out);
    plan.err.filtered = !spec.stderr_filters.empty() && (all || tee.err);
    if (plan.out.filtered || plan.err.filtered) {
      plan.filtered_prefix =
          expand_prefix(spec.log_line_prefix_template.value_or("[${role_name}${local_rank}]:"),
                        spec.role, local_rank, assignment.first_rank + local_rank, hostname);
    }
  }
  plan.input = spec.stdin_rank == assignment.first_rank + local_rank;
  // The only worker of an elastic world that has shrunk to one does not count as alone: the world
  // may grow again.
  const bool alone = assignment.world_size == 1 && spec.nodes.most == 1;
  const StreamPlan untouched;
  plan.inherit =
      alone && !spec.log_line_prefix_template && plan.out == untouched && plan.err == untouched;
  if (spec.log_line_prefix_template || !alone) {
    const char* usual = spec.nodes.most > 1 ? "[${hostname}:${rank}] " : "[${rank}] ";
    plan.prefix = expand_prefix(spec.log_line_prefix_template.value_or(usual), spec.role,
                                local_rank, assignment.first_rank + local_rank, hostname);
  }
  return plan;
}

/// The number of workers; 0 if one for each GPU was asked for and there is none.
int workers_of(const Part& part, const Machine& machine, int gpus) {
  using Kind = WorkersAsked::Kind;
  switch (part.workers.kind) {
    case Kind::number:
      break;
    case Kind::cpu:
      return machine.usable_cores;
    case Kind::gpu:
      return gpus;
    case Kind::automatic:
      return gpus > 0 ? gpus : machine.usable_cores;
  }
  return part.workers.number;
}

/// By local rank; empty lists where nothing is bound.
Read<std::vector<std::vector<int>>> plan_cores(const JobSpec& spec, const Machine& machine,
                                               std::span<const std::string> environment,
                                               int workers) {
  if (spec.binding == Binding::none) {
    return std::vector<std::vector<int>>(static_cast<std::size_t>(workers));
  }
  return bind_workers(machine.topology, spec.binding, workers, visible_gpus(machine, environment));
}

}  // namespace

bool StdioPlan::only_console() const {
  const StreamPlan untouched;
  return !inherit && out == untouched && err == untouched;
}

std::optional<EarlyExit> check_variables(const Part& part,
                                         std::span<const std::string> environment) {
  for (const auto& [name, value] : part.variables) {
    if (value || lookup(environment, name)) continue;
    return refuse("--env " + name + ": there is no such variable here to be handed on; give it a " +
                  "value: --env " + name + "=VALUE");
  }
  return std::nullopt;
}

std::variant<int, EarlyExit> worker_count(const JobSpec& spec, const Machine& machine,
                                          std::span<const std::string> environment) {
  int count = 0;
  for (const Part* part : spec.parts()) {
    if (auto wrong = check_variables(*part, environment)) return *std::move(wrong);
    const auto inherited = inherited_by(*part, environment);
    const int gpus = static_cast<int>(visible_gpus(machine, inherited).size());
    const int more = workers_of(*part, machine, gpus);
    if (more == 0) {
      return refuse("--nproc-per-node gpu: " +
                    (machine.gpus == 0
                         ? "this host shows no GPU (no /dev/nvidia0); use a number, or auto"
                         : hidden_gpus(inherited)));
    }
    count += more;
    if (count > workers_max) {
      return refuse("the parts of the line have " + std::to_string(count) +
                    " workers and more; at most " + std::to_string(workers_max) +
                    " are allowed on one node");
    }
    if (!spec.virtual_local_rank || machine.gpus == 0 || gpus >= count) continue;
    // On a host without GPUs the flag only sets LOCAL_RANK to 0, as under torchrun.
    const std::string need = "--virtual-local-rank: " + std::to_string(count) +
                             (count == 1 ? " worker needs" : " workers need") + " a GPU each, ";
    if (gpus == 0)
      return refuse(need + "and " + hidden_gpus(inherited) + "; leave out the one or the other");
    return refuse(need + std::to_string(gpus) + " can be seen; lower --nproc-per-node");
  }
  if (auto wrong = check_ranks(spec, count)) return *std::move(wrong);
  const auto cores = plan_cores(spec, machine, inherited_by(spec, environment), count);
  if (const auto* complaint = std::get_if<Complaint>(&cores)) {
    return refuse("--" + std::string(spec.binding_flag) + ": " + complaint->sentence);
  }
  return count;
}

std::optional<std::string> note_of_few_gpus(const JobSpec& spec, const Machine& machine,
                                            std::span<const std::string> environment, int workers) {
  const int gpus = static_cast<int>(visible_gpus(machine, inherited_by(spec, environment)).size());
  // `dlaunch bench` says it itself, where it is for GPUs.
  const bool number = spec.workers.kind == WorkersAsked::Kind::number;
  // With several programs, some may use no GPUs.
  const bool asked = number && !spec.bench && spec.later_parts.empty();
  if (!asked || gpus == 0 || workers <= gpus) return std::nullopt;
  return std::to_string(workers) + " workers and " + std::to_string(gpus) +
         (gpus == 1 ? " GPU" : " GPUs") + " that they see: local ranks from " +
         std::to_string(gpus) +
         " on have none of their own (--nproc-per-node gpu starts one worker for each GPU)";
}

std::optional<std::string> note_of_shared_cores(const JobSpec& spec, const Machine& machine,
                                                std::span<const std::string> environment,
                                                int workers) {
  const bool core = spec.binding == Binding::core_share;
  const bool l3 = spec.binding == Binding::core_complex && spec.binding_flag == "bind";
  if (!core && !l3) return std::nullopt;
  const auto bound = plan_cores(spec, machine, inherited_by(spec, environment), workers);
  const auto* cores = std::get_if<std::vector<std::vector<int>>>(&bound);
  if (cores == nullptr) return std::nullopt;
  const std::set<std::vector<int>> different(cores->begin(), cores->end());
  if (different.size() == cores->size()) return std::nullopt;
  return std::string(core ? "--bind core: " : "--bind l3: ") + std::to_string(workers) +
         " workers take turns on " + std::to_string(different.size()) +
         (core ? " cores" : " groups of cores") + ": there are no more that they may use";
}

std::optional<std::string> note_of_stdin(const JobSpec& spec, const Assignment& assignment) {
  const int rank = spec.stdin_rank.value_or(0);
  if (assignment.node_rank != 0 || rank < assignment.world_size) return std::nullopt;
  return "--stdin " + std::to_string(rank) + ": there is no rank " + std::to_string(rank) +
         " among " + std::to_string(assignment.world_size) + "; none reads standard input";
}

std::string run_directory_name(std::string prefix, std::string_view job, std::string_view random) {
  return prefix.append(job).append("_").append(random);
}

std::string run_directory_prefix(const JobSpec& spec, std::span<const std::string> environment) {
  if (spec.log_dir) return *spec.log_dir + "/";
  const auto temporary = lookup(environment, "TMPDIR");
  const bool known = temporary && !temporary->empty();
  return std::string(known ? *temporary : "/tmp") + "/dlaunch_";
}

bool runs_under_python(const Part& part) {
  if (part.module || part.run_path) return true;
  return !part.no_python && part.program.front().ends_with(".py");
}

std::vector<std::string> worker_command(const Part& part, const Machine& machine,
                                        std::span<const std::string> inherited) {
  std::vector<std::string> command;
  if (runs_under_python(part)) {
    const auto asked = lookup(inherited, "PYTHON_EXEC");
    const std::string usual = machine.python.empty() ? "python3" : machine.python;
    command.push_back(asked && !asked->empty() ? std::string(*asked) : usual);
    command.emplace_back("-u");
    if (part.module) command.emplace_back("-m");
  }
  command.insert(command.end(), part.program.begin(), part.program.end());
  return command;
}

bool wants_logs(const JobSpec& spec) {
  return spec.redirects.any() || spec.tee.any() || !spec.stdout_filters.empty() ||
         !spec.stderr_filters.empty();
}

LaunchPlan make_plan(const JobSpec& spec, const Machine& machine,
                     std::span<const std::string> environment, const Assignment& assignment) {
  LaunchPlan plan;
  plan.assignment = assignment;
  std::vector<std::vector<std::string>> inherited;  // By part, as are the plan's programs.
  std::vector<std::size_t> program_of;              // By local rank.
  for (const Part* part : spec.parts()) {
    inherited.push_back(inherited_by(*part, environment));
    const int gpus = static_cast<int>(visible_gpus(machine, inherited.back()).size());
    const int more = workers_of(*part, machine, gpus);
    program_of.insert(program_of.end(), static_cast<std::size_t>(more), plan.programs.size());
    ProgramPlan& program = plan.programs.emplace_back();
    program.argv = worker_command(*part, machine, inherited.back());
    if (runs_under_python(*part) && !part->module) program.script = part->program.front();
    program.environment = common_environment(spec, machine, inherited.back(), assignment);
    program.directory = part->directory;
  }
  program_of.resize(static_cast<std::size_t>(assignment.local_size), plan.programs.size() - 1);

  // Without logs there is one directory, and in it an error file for each worker that leaves one:
  // a directory per worker on a busy disk costs more than starting the worker.
  const bool has_logs = spec.log_dir || wants_logs(spec);
  std::string attempt_directory;
  std::string attempt_name = "attempt_" + std::to_string(assignment.attempt);
  if (assignment.repeated_attempt) attempt_name += "_epoch_" + std::to_string(assignment.epoch);
  if (!assignment.run_directory.empty() && has_logs) {
    attempt_directory = assignment.run_directory + "/" + attempt_name;
    plan.directories.push_back(attempt_directory);
    const auto filter = [&](const std::vector<std::string>& words, const std::string& name) {
      std::optional<FilterPlan> result;
      if (!words.empty()) result = FilterPlan{words, attempt_directory + "/" + name};
      return result;
    };
    plan.filter_out = filter(spec.stdout_filters, "filtered_stdout.log");
    plan.filter_err = filter(spec.stderr_filters, "filtered_stderr.log");
  }
  // Nodes may share the folder.
  const std::string own =
      assignment.node_rank == 0 ? "" : "." + std::to_string(assignment.node_rank);
  if (spec.flight_file) {
    plan.flight_file = *spec.flight_file + own;
  } else if (spec.log_dir && !attempt_directory.empty()) {
    plan.flight_file = attempt_directory + "/flight.json" + own;
  }
  if (spec.stack_on_timeout && !attempt_directory.empty()) {
    plan.stacks_file = attempt_directory + "/stacks.txt" + own;
  }
  // worker_count() has refused bindings that cannot be.
  const auto cores = plan_cores(spec, machine, inherited.front(), assignment.local_size);
  const auto* bound = std::get_if<std::vector<std::vector<int>>>(&cores);
  const std::string& hostname = spec.node_id.empty() ? machine.hostname : spec.node_id;
  for (int local_rank = 0; local_rank < assignment.local_size; ++local_rank) {
    WorkerSpec worker;
    worker.rank = assignment.first_rank + local_rank;
    worker.local_rank = local_rank;
    worker.program = program_of[static_cast<std::size_t>(local_rank)];
    const auto& own_part = inherited[worker.program];
    std::string directory;
    if (!attempt_directory.empty()) {
      directory = attempt_directory + "/" + std::to_string(worker.rank);
      plan.directories.push_back(directory);
      worker.error_file = directory + "/error.json";
    } else if (!assignment.run_directory.empty()) {
      worker.error_file = assignment.run_directory + "/" + attempt_name + "_rank_" +
                          std::to_string(worker.rank) + "_error.json";
    }
    worker.own_environment =
        worker_environment(spec, machine, own_part, assignment, local_rank, worker.error_file);
    if (bound != nullptr) worker.cores = (*bound)[static_cast<std::size_t>(local_rank)];
    worker.stdio = plan_stdio(spec, assignment, hostname, local_rank, directory);
    if (machine.colours && worker.stdio.only_console()) {
      append_colour_variables(worker.own_environment, own_part);
    }
    plan.workers.push_back(std::move(worker));
  }
  return plan;
}

std::string expand_prefix(std::string_view pattern, std::string_view role, int local_rank, int rank,
                          std::string_view hostname) {
  std::string out;
  while (!pattern.empty()) {
    const auto dollar = pattern.find('$');
    out += pattern.substr(0, dollar);
    if (dollar == std::string_view::npos) break;
    pattern.remove_prefix(dollar);
    // Reads $$, $name and ${name} as Python's string.Template does, which torchrun uses; unknown
    // names stay as they are.
    if (pattern.starts_with("$$")) {
      out += '$';
      pattern.remove_prefix(2);
      continue;
    }
    const bool braced = pattern.starts_with("${");
    const std::size_t begin = braced ? 2 : 1;
    std::size_t end = begin;
    while (end < pattern.size() &&
           (std::isalnum(static_cast<unsigned char>(pattern[end])) || pattern[end] == '_')) {
      ++end;
    }
    const auto name = pattern.substr(begin, end - begin);
    const bool closed = !braced || (end < pattern.size() && pattern[end] == '}');
    const std::size_t size = closed && braced ? end + 1 : end;
    if (closed && name == "role_name") {
      out += role;
    } else if (closed && name == "local_rank") {
      out += std::to_string(local_rank);
    } else if (closed && name == "rank") {
      out += std::to_string(rank);
    } else if (closed && name == "hostname") {
      out += hostname;
    } else {
      out += pattern.substr(0, size);
    }
    pattern.remove_prefix(size);
  }
  return out;
}

}  // namespace dlaunch::launcher
