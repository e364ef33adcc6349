#include "launcher/plan/environment.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/request/shell_words.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>

namespace dlaunch::launcher {

namespace {

void row(std::string& out, std::string_view name, std::string_view value) {
  constexpr std::size_t value_column = 16;
  out.append("  ").append(name).append(value_column - std::min(value_column, name.size()), ' ');
  out.append(value).append("\n");
}

std::string where(const StreamPlan& stream) {
  if (!stream.file) return stream.console ? "console" : "dropped";
  return (stream.console ? "console and " : "") + *stream.file;
}

std::string where(const FilterPlan& filter) {
  std::string words;
  for (const auto& word : filter.words) words += (words.empty() ? "" : " or ") + shell_word(word);
  return "with " + words + " also to " + filter.file;
}

/// Among several programs, each line says whose it is.
void append_program(std::string& out, const LaunchPlan& plan, std::size_t index,
                    std::string_view file) {
  const ProgramPlan& program = plan.programs[index];
  row(out, "command", shell_line(program.argv));
  row(out, "program", file.empty() ? "none that can be run" : file);
  if (!program.directory.empty()) row(out, "directory", program.directory);
  if (plan.programs.size() == 1) return;
  std::vector<int> ranks;
  for (const auto& worker : plan.workers) {
    if (worker.program == index) ranks.push_back(worker.rank);
  }
  row(out, "of ranks", number_ranges(ranks));
}

void append_worker(std::string& out, const WorkerSpec& worker) {
  out +=
      "  rank " + std::to_string(worker.rank) + ": local rank " + std::to_string(worker.local_rank);
  if (!worker.cores.empty()) out += ", cores " + number_ranges(worker.cores);
  if (worker.stdio.inherit) {
    out += ", keeps the terminal\n";
    return;
  }
  out += ", stdin " + std::string(worker.stdio.input ? "ours" : "/dev/null") + ", stdout " +
         where(worker.stdio.out) + ", stderr " + where(worker.stdio.err);
  if (!worker.stdio.prefix.empty()) out += ", prefix " + shell_word(worker.stdio.prefix);
  out += "\n";
}

void append_environment(std::string& out, const JobSpec& spec, const LaunchPlan& plan) {
  out += "\nVariables set for rank " + std::to_string(plan.workers.front().rank) + ":\n";
  const auto& common = plan.programs.front().environment;
  std::vector<std::string_view> lines(common.begin(), common.end());
  const auto& own = plan.workers.front().own_environment;
  lines.insert(lines.end(), own.begin(), own.end());
  for (const auto line : lines) {
    const auto name = line.substr(0, line.find('='));
    const bool to_come = line.ends_with('=') || line == "MASTER_PORT=0";
    if (to_come && is_worker_variable(name)) continue;  // Known only when it runs.
    const bool suggested = name == "OMP_NUM_THREADS" || name == "TORCH_NCCL_ASYNC_ERROR_HANDLING" ||
                           name == "CUDA_VISIBLE_DEVICES";
    const auto is_name = [&](const auto& variable) { return variable.name == name; };
    const bool asked = std::ranges::any_of(spec.variables, is_name);
    if (is_worker_variable(name) || suggested || asked) out.append("  ").append(line).append("\n");
  }
}

std::string origin_text(const Setting& setting) {
  switch (setting.origin) {
    case Origin::command_line:
      return "command line";
    case Origin::dlaunch_variable:
    case Origin::pet_variable:
      return "variable " + setting.where;
    case Origin::scheduler:
      return setting.where;
    case Origin::config_file:
      return "file " + setting.where;
    case Origin::standard:
      break;
  }
  return "default";
}

/// With several nodes: names the node whose view this is, and who decides what is not known yet.
std::string nodes_text(const JobSpec& spec, const Assignment& assignment) {
  std::string text =
      spec.nodes.elastic() ? std::to_string(spec.nodes.least) + " to " : std::string();
  text += std::to_string(spec.nodes.most) + "; seen here as node rank " +
          std::to_string(assignment.node_rank) +
          (spec.node_rank ? "" : ", which the rendezvous decides") +
          ", as if all had as many workers. They meet at " + spec.meeting.host +
          (spec.meeting.port == 0 ? "" : ":" + std::to_string(spec.meeting.port));
  return text + (spec.meeting.kind == Meeting::Kind::fixed ? ", at node rank 0" : "");
}

}  // namespace

std::string settings_text(const JobSpec& spec) {
  std::size_t flag_width = 0;
  std::size_t value_width = 0;
  for (const auto& setting : spec.settings) {
    flag_width = std::max(flag_width, setting.flag.size());
    value_width = std::max(value_width, std::min<std::size_t>(setting.value.size(), 32));
  }
  std::string out = "\nOptions, and where each value came from:\n";
  for (const auto& setting : spec.settings) {
    std::string value = setting.value.empty() ? "-" : setting.value;
    for (auto i = setting.earlier.size(); i-- > 0;) value = setting.earlier[i] + ", " + value;
    out.append("  ").append(setting.flag).append(flag_width + 2 - setting.flag.size(), ' ');
    out.append(value).append(value_width + 2 - std::min(value_width, value.size()), ' ');
    out.append(origin_text(setting)).append("\n");
  }
  return out;
}

bool has_agent_store(const JobSpec& spec, int workers) {
  const bool lone = spec.meeting.kind == Meeting::Kind::one_node && workers == 1;
  return spec.torch_store == TorchStore::agent && !lone;
}

Assignment assignment_before_meeting(const JobSpec& spec, int workers) {
  Assignment assignment;
  assignment.job = spec.job_id.value_or("dlaunch-0");
  assignment.local_size = assignment.world_size = workers;
  assignment.agent_store = has_agent_store(spec, workers);
  assignment.master_port = spec.master_port;
  if (spec.meeting.kind == Meeting::Kind::one_node) return assignment;
  const bool fixed = spec.meeting.kind == Meeting::Kind::fixed;
  assignment.node_count = spec.nodes.most;
  assignment.node_rank = spec.node_rank.value_or(0);
  assignment.first_rank = assignment.node_rank * workers;
  assignment.world_size = spec.nodes.most * workers;
  assignment.master_addr = fixed ? spec.meeting.host : std::string();
  if (!fixed && !spec.master_port_insisted) assignment.master_port = 0;
  return assignment;
}

std::string describe_plan(const JobSpec& spec, const Machine& machine, const LaunchPlan& plan,
                          std::span<const std::string> files, std::span<const std::string> notes) {
  constexpr std::size_t workers_shown_max = 16;
  const auto& assignment = plan.assignment;
  std::string out = "Dry run: nothing is started.\n\nPlan:\n";
  row(out, "job", assignment.job);
  for (std::size_t i = 0; i < plan.programs.size(); ++i) append_program(out, plan, i, files[i]);
  row(out, "workers",
      std::to_string(assignment.local_size) + " on " + machine.hostname + ", world of " +
          std::to_string(assignment.world_size));
  const bool several = spec.meeting.kind != Meeting::Kind::one_node;
  if (several) row(out, "nodes", nodes_text(spec, assignment));
  row(out, "usable cores",
      std::to_string(machine.usable_cores) +
          (machine.cores_reason.empty() ? "" : " (" + machine.cores_reason + ")"));
  row(out, "GPUs", std::to_string(machine.gpus));
  const std::string port =
      assignment.master_port == 0 ? "any free port" : std::to_string(assignment.master_port);
  row(out, "master",
      (assignment.master_addr.empty() ? "node rank 0's address" : assignment.master_addr) + ":" +
          port +
          (assignment.agent_store ? ", PyTorch's store is hosted by dlaunch"
                                  : ", left unbound for the program"));
  std::string restarts = "up to " + std::to_string(spec.max_restarts);
  if (spec.restart_window.count() > 0) restarts += " within " + duration_text(spec.restart_window);
  row(out, "restarts", restarts);
  row(out, "after a failure",
      std::string(spec.continue_on_failure ? "the others go on" : "all are stopped") + "; grace " +
          duration_text(spec.failure_grace) + ", SIGKILL after " +
          duration_text(spec.shutdown_timeout));
  std::string signals;
  for (const int number : spec.signals) {
    signals += (signals.empty() ? "" : " ") + signal_name(number);
  }
  std::string ignored;
  for (const int number : spec.signals_ignored) {
    ignored +=
        (ignored.empty() ? "; ignored, as when dlaunch was started: " : " ") + signal_name(number);
  }
  row(out, "stop signals", (signals.empty() ? "none" : signals) + ignored);
  row(out, "log directory", assignment.run_directory.empty() ? "none" : assignment.run_directory);
  if (plan.filter_out) row(out, "lines of stdout", where(*plan.filter_out));
  if (plan.filter_err) row(out, "lines of stderr", where(*plan.filter_err));

  out += "\nWorkers:\n";
  for (std::size_t i = 0; i < std::min(plan.workers.size(), workers_shown_max); ++i) {
    append_worker(out, plan.workers[i]);
  }
  if (plan.workers.size() > workers_shown_max) {
    out += "  and " + std::to_string(plan.workers.size() - workers_shown_max) + " more\n";
  }
  if (!plan.workers.empty()) append_environment(out, spec, plan);
  out += settings_text(spec);
  for (const auto& note : notes) out += "\nNote: " + note + "\n";
  return out;
}

}  // namespace dlaunch::launcher
