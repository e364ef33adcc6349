#include "launcher/agent_settings.hpp"

namespace dlaunch::launcher {
namespace {

/// Some have ended well, and others go on for so long after them: worth a line.
constexpr auto straggler_notice = std::chrono::seconds(20);

}  // namespace

SupervisorRules rules_of(const AgentTask& task) {
  SupervisorRules rules;
  rules.workers = task.workers;
  rules.peers_elsewhere = task.options.meeting.kind != Meeting::Kind::one_node;
  rules.on_failure = task.options.continue_on_failure ? OnFailure::carry_on : OnFailure::stop;
  rules.failure_grace = task.options.failure_grace;
  rules.shutdown_timeout = task.options.shutdown_timeout;
  rules.straggler_notice = straggler_notice;
  rules.straggler_timeout = task.options.straggler_timeout;
  return rules;
}

rendezvous::JobIdentity identity_of(const AgentTask& task, const Assignment& assignment,
                                    const std::string& mesh_host) {
  rendezvous::JobIdentity identity{
      .job = assignment.job,
      .epoch = assignment.epoch,
      .first_rank = assignment.first_rank,
      .local_size = assignment.local_size,
      .world_size = assignment.world_size,
      .host = task.machine.hostname,
      .mesh_host = mesh_host,
      .failure_grace = task.options.failure_grace,
      .data_key = {},
      .oversubscribed = task.machine.processors.oversubscribed_by(assignment.local_size)};
  if (task.job_key) identity.data_key = derive_data_key(*task.job_key, assignment.epoch);
  return identity;
}

}  // namespace dlaunch::launcher
