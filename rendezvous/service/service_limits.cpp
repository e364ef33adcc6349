#include "rendezvous/service/service_state.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"

#include <string>
#include <utility>

/// The limits of a service's connections, and the choice of those that have to go.
namespace dlaunch::rendezvous {
namespace {

/// How long an agent may take to join; and after how long it has to make room for another.
constexpr auto join_by = std::chrono::seconds(10);
constexpr auto joins_slowly = std::chrono::milliseconds(500);
/// How long a tool, which joins nothing, may be silent.
constexpr auto visit_silent_max = std::chrono::seconds(60);

}  // namespace

bool Service::State::is_crowded(const std::string& job) const {
  const auto found = connections_of.find(job);
  return found != connections_of.end() && found->second >= rules.connections_per_job_max;
}

void Service::State::expect(store::ConnectionId who, bool to_join) {
  const auto now = Clock::now();
  if (to_join) {
    unjoined.emplace_back(now + join_by, who);
  } else {
    visitors.emplace_back(now + visit_silent_max, who);
  }
}

store::ConnectionId Service::State::stranger_to_go(Clock::time_point now) {
  for (auto* strangers : {&unjoined, &visitors}) {
    const auto patience = strangers == &unjoined ? join_by : visit_silent_max;
    while (!strangers->empty()) {
      const auto [when, who] = strangers->front();
      const auto caller = callers.find(who);
      const bool stranger = caller != callers.end() && !caller->second.joined && !is_early(who);
      if (stranger && when - patience + joins_slowly > now) break;
      strangers->pop_front();
      if (!stranger) continue;
      ++totals.never_joined;
      return who;
    }
  }
  return 0;
}

void Service::State::close_strangers(Clock::time_point now) {
  while (!unjoined.empty() && unjoined.front().first <= now) {
    const store::ConnectionId who = unjoined.front().second;
    unjoined.pop_front();
    const auto caller = callers.find(who);
    if (caller == callers.end() || caller->second.joined || is_early(who)) continue;
    ++totals.never_joined;
    server.close(who);
  }
  while (!visitors.empty() && visitors.front().first <= now) {
    const store::ConnectionId who = visitors.front().second;
    visitors.pop_front();
    if (!callers.contains(who)) continue;
    const auto until = server.last_heard(who).value_or(now) + visit_silent_max;
    if (until > now) {
      visitors.emplace_back(until, who);
      continue;
    }
    ++totals.never_joined;
    server.close(who);
  }
}

void Service::State::on_refused(store::RefusalKind kind, std::string sentence) {
  refusals.add(kind, std::move(sentence), Clock::now(), warn());
  arm();
}

RefusalLog::Tell Service::State::warn() const {
  return [this](std::string sentence) {
    if (log) log({LogLine::Level::warning, "", std::move(sentence)});
  };
}

/// Ranks prove the job's key to each other, and each has it from its own node.
std::optional<message::Refused> Service::State::other_key(const Job& job, Session session,
                                                          std::uint64_t key) {
  if (key == 0 || job.key == 0 || key == job.key) return std::nullopt;
  if (job.members.empty() || job.members.contains(session)) return std::nullopt;
  return message::Refused{{0, Errc::unauthenticated, exit_code::authentication,
                           "its secret is accepted here, but the job's other nodes have another "
                           "one, and all nodes of a "
                           "job need the same: give it theirs, or start them all again"}};
}

std::string Service::State::objection(const JobRules& asked) const {
  const std::pair<const char*, Clock::duration> times[] = {
      {"a join timeout", asked.join_timeout},
      {"a last call", asked.last_call},
      {"a pause before a restart", asked.restart_backoff.longest},
      {"a lease", asked.liveness.lease},
      {"a reconnect grace", asked.liveness.reconnect_grace},
  };
  for (const auto& [what, time] : times) {
    if (time <= rules.asked_time_max) continue;
    return what + std::string(" of ") + duration_text(time) +
           " is too long for this rendezvous; its limit is " + duration_text(rules.asked_time_max);
  }
  return {};
}

void Service::State::on_slow_reader(store::ConnectionId who, const std::string& peer) {
  if (!log) return;
  std::string job, name = "a client of PyTorch's store";
  if (const auto caller = callers.find(who); caller != callers.end()) {
    job = caller->second.job;
    name = "a tool, or a node that has not joined,";
    if (const Job* joined_job = find(job)) {
      const auto member = joined_job->members.find(caller->second.session);
      if (member != joined_job->members.end()) name = "node " + member->second.node;
    }
  }
  log({LogLine::Level::warning, job, store::slow_reader_text(name, peer)});
}

void Service::State::on_failed(store::ConnectionId who, const std::string& sentence) {
  if (!log) return;
  const auto caller = callers.find(who);
  const std::string peer = server.peer_of(who);
  log({LogLine::Level::error, caller == callers.end() ? "" : caller->second.job,
       (peer.empty() ? "a connection" : "the connection from " + peer) +
           " was ended: " + sentence});
}

}  // namespace dlaunch::rendezvous
