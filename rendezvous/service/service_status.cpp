#include "rendezvous/service/service_state.hpp"
#include "runtime/base/flat_map.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

namespace dlaunch::rendezvous {

/// The rounds' status, with later signs of life that only the server has seen, since a busy agent
/// sends no heartbeats. It only reads, so that a look at a job takes no step of its rounds.
NamedJobStatus Service::State::status_of(const Job& job) const {
  const auto usage = server.usage(job.space);
  NamedJobStatus line{job.name, job.incarnation, job.rounds.status(), usage.keys, usage.bytes};
  if (job.finished) {
    line.status.state = JobStatus::State::finished;
    line.status.exit_code = job.finished->exit_code;
    line.finish = *job.finished;
    return line;
  }
  struct Heard {
    Clock::time_point last;
    const CallsKnown* calls = nullptr;
  };
  FlatMap<std::string_view, Heard> heard;
  heard.reserve(job.members.size());
  for (const auto& [session, member] : job.members) {
    // A node that was started again has two sessions for a time.
    Heard& node = heard[member.node];
    node.last = std::max(node.last, server.last_heard(member.connection).value_or(node.last));
    if (member.calls.calls != nullptr && member.epoch == job.epoch) node.calls = &member.calls;
  }
  for (auto& node : line.status.nodes) {
    const auto found = heard.find(node.id);
    if (found == heard.end()) continue;
    node.last_heard = std::max(node.last_heard, found->second.last);
    const CallsKnown* const known = found->second.calls;
    if (known == nullptr || !node.node_rank) continue;
    line.calls.push_back(
        {*node.node_rank, node.first_rank, known->told, node.last_heard, known->calls});
  }
  return line;
}

/// Keeps a node's report for its own job's pages. Ranks that the node does not have are dropped,
/// and the whole report if there is no room.
void Service::State::hear(Job& job, Session from, message::CallsNow told) {
  if (told.epoch != job.epoch || !is_of_epoch(job, from)) return;
  Member& member = job.members[from];
  member.calls = {};
  std::int64_t ranks = 0;
  std::size_t bytes = 0;
  for (auto& each : told.ranks) {
    if (each.ranks < 1) return;
    ranks += each.ranks;
    each.call = without_controls(std::move(each.call));
    bytes += sizeof each + each.call.capacity() + each.reached.size() * sizeof each.reached[0];
  }
  if (ranks > member.workers) return;
  const auto& budget = rules.limits.memory;
  if (budget != nullptr && !budget->has_room(bytes)) {
    ++budget->refused;
    return;
  }
  member.calls = {std::make_shared<const std::vector<RankCalls>>(std::move(told.ranks)),
                  Clock::now(), store::MemoryCharge(budget)};
  member.calls.charge.set(bytes);
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
    totals.memory_used = memory->used();
    totals.memory_max = memory->max;
    totals.memory_refusals = memory->refused;
  }
  return totals;
}

}  // namespace dlaunch::rendezvous
