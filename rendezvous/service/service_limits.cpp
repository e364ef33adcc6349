#include "rendezvous/service/service_state.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
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

/// A roster names everybody, in one frame.
constexpr std::size_t roster_bytes_max = wire::frame_bytes_max - (64u << 10);

/// The bytes that an offer takes in a roster.
std::size_t roster_bytes(const NodeOffer& offer) {
  constexpr std::size_t fixed = 32;
  std::size_t bytes = fixed + offer.id.size() + offer.host.size();
  for (const auto& address : offer.store_addresses) bytes += sizeof(std::uint32_t) + address.size();
  return bytes;
}

/// What a node's offer takes here, about.
std::size_t held_bytes(const NodeOffer& offer) {
  return sizeof(Member) + sizeof offer + roster_bytes(offer) + offer.share.kernel.size() +
         offer.share.memory.size() + offer.share.lends_at.size();
}

/// What one node may tell of its ranks' calls in an epoch, and the part of the memory that is not
/// for it: it serves for a sentence only.
constexpr std::size_t calls_told_max = 8u << 20;
constexpr std::size_t calls_reserved_part = 8;

void cut(std::string& text) {
  if (text.size() <= call_bytes_max) return;
  text.resize(call_bytes_max);
  text.shrink_to_fit();
}

}  // namespace

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= name_bytes_max && std::ranges::none_of(text, is_control);
}

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
  refusals.add(kind, std::move(sentence), Clock::now(), tell_refusal());
  arm();
}

void Service::State::on_full(const std::string& sentence) {
  const auto now = Clock::now();
  if (full_told != Clock::time_point::min() && now - full_told < RefusalLog::period) return;
  full_told = now;
  if (!log) return;
  log({LogLine::Level::warning, "",
       sentence + "; raise the limit on open files (LimitNOFILE= of the unit, ulimit -n)"});
}

RefusalLog::Tell Service::State::tell_refusal() const {
  return [this](const std::string& job, std::string sentence) {
    if (!log) return;
    log({.level = LogLine::Level::warning,
         .job = job,
         .sentence = std::move(sentence),
         .event = job.empty() ? LogLine::Event::other : LogLine::Event::refused});
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

std::optional<message::Refused> Service::State::objection(Session session,
                                                          const message::Join& message) const {
  const auto refused = [](int exit_code, std::string why) {
    return message::Refused{{0, Errc::refused, exit_code, std::move(why)}};
  };
  if (session == 0) return refused(exit_code::configuration, "who joins a job needs a session");
  if (!is_name(message.offer.id) || !is_name(message.offer.host)) {
    return refused(exit_code::configuration,
                   "a node's and a host's name have at most 255 bytes, none of them a control "
                   "character");
  }
  if (message.rules.nodes_max > rules.nodes_per_job_max) {
    return refused(exit_code::configuration,
                   "a job of " + std::to_string(message.rules.nodes_max) +
                       " nodes is too big for this rendezvous; its limit is " +
                       std::to_string(rules.nodes_per_job_max));
  }
  if (std::string why = objection(message.rules); !why.empty()) {
    return refused(exit_code::configuration, std::move(why));
  }
  const std::size_t longest =
      roster_bytes_max / static_cast<std::size_t>(std::max(1, message.rules.nodes_max));
  if (const std::size_t bytes = roster_bytes(message.offer); bytes > longest) {
    return refused(exit_code::configuration, "the node's names and addresses take " +
                                                 std::to_string(bytes) + " bytes; the limit is " +
                                                 std::to_string(longest));
  }
  return std::nullopt;
}

/// One that comes back is not sent away for want of memory.
std::optional<message::Refused> Service::State::no_room(const Job* job, Session session,
                                                        const NodeOffer& offer,
                                                        store::MemoryCharge& charge) {
  charge.set(held_bytes(offer));
  if (charge.has_room()) return std::nullopt;
  if (job != nullptr) {
    const auto before = job->members.find(session);
    const bool back = before != job->members.end();
    if (back && before->second.offer.bytes() >= charge.bytes()) return std::nullopt;
  }
  store::MemoryBudget& budget = *rules.limits.memory;
  ++budget.refused;
  return message::Refused{{0, Errc::refused, exit_code::unreachable,
                           "this rendezvous has no room for another node: its jobs hold " +
                               std::to_string(budget.used() - charge.bytes()) + " of " +
                               std::to_string(budget.max) + " bytes"}};
}

bool Service::State::may_keep(Member& member, message::CallsMade& told) {
  std::size_t bytes = 0;
  for (auto& communicator : told.communicators) {
    cut(communicator.name);
    bytes += sizeof communicator + communicator.name.size();
    for (auto& call : communicator.last) {
      cut(call.text);
      bytes += sizeof call + call.text.size();
    }
  }
  const auto& budget = rules.limits.memory;
  if (budget == nullptr) return true;
  const std::size_t all = member.calls_made.bytes() + bytes;
  if (all > calls_told_max || !budget->has_room(bytes + budget->max / calls_reserved_part)) {
    ++budget->refused;
    return false;
  }
  if (member.calls_made.bytes() == 0) member.calls_made = store::MemoryCharge(budget);
  member.calls_made.set(all);
  return true;
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
