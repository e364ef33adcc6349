#include "launcher/job/agent_settings.hpp"

#include "launcher/plan/environment.hpp"
#include "launcher/request/option_values.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include <unistd.h>

namespace dlaunch::launcher {

SupervisorRules rules_of(const AgentTask& task) {
  return {{task.spec}, task.workers, task.spec.meeting.kind != Meeting::Kind::one_node};
}

LaunchPlan plan_of(const AgentTask& task, const Assignment& assignment) {
  return make_plan(task.spec, task.machine, task.environment, assignment);
}

Voice voice_of(const AgentTask& task) {
  return {.json = task.spec.log_format == LogFormat::json,
          .quiet = task.spec.quiet,
          .job = task.job,
          .node = task.node_id};
}

/// Whether a worker keeps our streams depends on how many there are, which is known before the
/// round.
std::unique_ptr<Output> make_output(const AgentTask& task, Output::OnTraceback on_traceback) {
  Assignment alone;
  alone.run_directory = "/";  // Any, since a stream that goes to a log is not the worker's own.
  alone.local_size = alone.world_size = task.workers;
  const LaunchPlan plan = plan_of(task, alone);
  const bool all_inherit = std::all_of(plan.workers.begin(), plan.workers.end(),
                                       [](const auto& w) { return w.stdio.inherit; });
  if (all_inherit) return nullptr;
  Output::Manner manner;
  manner.redraws = terminal_redraws(task.environment);
  manner.colours = wants_colours(task.environment);
  manner.voice = voice_of(task);
  return std::make_unique<Output>(STDOUT_FILENO, STDERR_FILENO, std::move(manner),
                                  std::move(on_traceback));
}

JobRanks ranks_of(const LaunchPlan& plan, const std::vector<pid_t>& pids, const Output* output) {
  const auto now = Clock::now();
  const auto spans_of = [&](const std::optional<std::string>& file) {
    std::vector<JobRanks::LogSpan> spans;
    if (!file || output == nullptr) return spans;
    for (const auto& span : output->log_spans(*file)) {
      const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - span.last);
      const auto age_ms = std::max<std::chrono::milliseconds::rep>(age.count(), 0);
      spans.push_back({span.begin, static_cast<std::uint64_t>(age_ms)});
    }
    return spans;
  };
  JobRanks told;
  for (const auto& worker : plan.workers) {
    const auto place = static_cast<std::size_t>(worker.local_rank);
    const auto& out = worker.stdio.out.file;
    const auto& err = worker.stdio.err.file;
    told.ranks.push_back({.rank = worker.rank,
                          .pid = place < pids.size() ? pids[place] : 0,
                          .prefix = worker.stdio.prefix,
                          .out_file = out.value_or(""),
                          .err_file = err.value_or(""),
                          .out_spans = spans_of(out),
                          .err_spans = spans_of(err)});
  }
  return told;
}

std::string program_text(const JobSpec& spec) {
  std::string text;
  for (const Part* part : spec.parts()) {
    if (!text.empty()) text += " :";
    if (part->module) text += text.empty() ? "-m" : " -m";
    for (const auto& word : part->program) text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

rendezvous::JobIdentity identity_of(const AgentTask& task, const Assignment& assignment,
                                    const rendezvous::Admission& admission,
                                    const std::string& mesh_host) {
  rendezvous::JobIdentity identity{.job = assignment.job,
                                   .incarnation = assignment.incarnation,
                                   .epoch = assignment.epoch,
                                   .first_rank = assignment.first_rank,
                                   .local_size = assignment.local_size,
                                   .world_size = assignment.world_size,
                                   .host = task.machine.hostname,
                                   .mesh_host = mesh_host,
                                   .failure_grace = task.spec.failure_grace,
                                   .data_key = {},
                                   .crowded = admission.crowded,
                                   .memory = admission.memory};
  if (task.job_key) {
    identity.data_key = derive_data_key(*task.job_key, assignment.incarnation, assignment.epoch);
  }
  return identity;
}

StoreClients store_clients(const rendezvous::Admission& admission) {
  std::vector<std::string> hosts;
  for (const auto& entry : *admission.roster) {
    for (const auto& address : entry.store_addresses) {
      const auto read = read_endpoint(address);
      const auto* endpoint = std::get_if<EndpointAsked>(&read);
      if (!endpoint || !is_numeric_host(endpoint->host)) return std::nullopt;
      hosts.push_back(endpoint->host);
    }
  }
  if (hosts.empty()) return std::nullopt;
  return hosts;
}

}  // namespace dlaunch::launcher
