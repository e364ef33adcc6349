#include "rendezvous/service/service_state.hpp"
#include "runtime/base/flat_map.hpp"

#include <algorithm>
#include <string_view>

namespace dlaunch::rendezvous {

/// As the rounds know it, save that an agent that says much sends no heartbeats: what the server
/// has heard since counts, too. Reads only, so that looking at a job costs it no step.
NamedJobStatus Service::State::status_of(const Job& job) const {
  const auto usage = server.usage(job.space);
  NamedJobStatus line{job.name, job.incarnation, job.rounds.status(), usage.keys, usage.bytes};
  if (job.finished) {
    line.status.state = JobStatus::State::finished;
    line.status.exit_code = job.finished->exit_code;
    line.finish = *job.finished;
    return line;
  }
  FlatMap<std::string_view, Clock::time_point> heard;
  heard.reserve(job.members.size());
  for (const auto& [session, member] : job.members) {
    const auto last = server.last_heard(member.connection);
    if (!last) continue;
    auto& latest =
        heard[member.node];  // A node that was started again has two sessions for a while.
    latest = std::max(latest, *last);
  }
  for (auto& node : line.status.nodes) {
    const auto last = heard.find(node.id);
    if (last != heard.end()) node.last_heard = std::max(node.last_heard, last->second);
  }
  return line;
}

std::vector<NamedJobStatus> Service::jobs() const {
  std::vector<NamedJobStatus> found;
  for (const auto& [name, job] : state_->jobs) found.push_back(state_->status_of(job));
  return found;
}

std::optional<NamedJobStatus> Service::job_after(std::string_view name) const {
  const auto next = state_->jobs.upper_bound(name);
  if (next == state_->jobs.end()) return std::nullopt;
  return state_->status_of(next->second);
}

const Histogram& Service::message_times() const { return state_->message_times; }

store::Counters Service::counters() const { return state_->server.counters(); }

Totals Service::totals() const {
  Totals totals = state_->totals;
  totals.connections = state_->callers.size();
  totals.refused = state_->refusals.counts();
  if (const auto& memory = state_->rules.limits.memory) {
    totals.memory_used = memory->used;
    totals.memory_max = memory->max;
    totals.memory_refusals = memory->refused;
  }
  return totals;
}

}  // namespace dlaunch::rendezvous
