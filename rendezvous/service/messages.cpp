#include "rendezvous/service/messages.hpp"

#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace dlaunch::rendezvous::message {
namespace {

using wire::integers;
using wire::is;

/// The bytes of an empty text.
constexpr std::size_t text_bytes_min = sizeof(std::uint32_t);

void addresses(auto& io, auto& list) {
  io.repeat(
      list, text_bytes_min, [&](auto& address) { io.text(address); }, addresses_max);
}

/// Codes a value that others have in common; one that is read is nobody else's yet.
template <class T>
void shared(const SharedValue<T>& value, auto code) {
  code(*value);
}
template <class T>
void shared(SharedValue<T>& value, auto code) {
  T own;
  code(own);
  value = std::move(own);
}

/// A quota travels in thousandths of a processor; 0: none.
void quota(auto& io, auto& of) {
  constexpr double per_processor = 1000;  // Thousandths.
  constexpr std::int64_t thousandths_max = std::int64_t{1} << 32;
  std::int64_t number = 0;
  if (of) number = std::min<std::int64_t>(thousandths_max, std::llround(*of * per_processor));
  io.count(number, thousandths_max);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(of)>>) {
    of.reset();
    if (number > 0) of = static_cast<double>(number) / per_processor;
  }
}

void fields(auto& io, is<Processors> auto& m) {
  io.integer(m.allowed);
  io.repeat(
      m.cores, 2 * sizeof(std::int32_t),
      [&](auto& range) { integers(io, range.first, range.count); }, core_ranges_max);
  quota(io, m.quota);
  io.text(m.quota_of);
}
void fields(auto& io, is<HostShare> auto& m) {
  io.text(m.kernel);
  fields(io, m.processors);
  io.text(m.memory);
  io.text(m.lends_at);
}
void fields(auto& io, is<CommonMemory> auto& m) {
  io.repeat(
      m.parts, 2 * sizeof(std::int32_t),
      [&](auto& part) { integers(io, part.first_rank, part.workers); }, memory_parts_max);
  io.text(m.lender);
}

void fields(auto& io, is<Launch> auto& m) { integers(io, m.line, m.start); }
void fields(auto& io, is<NodeOffer> auto& m) {
  io.text(m.id);
  io.text(m.host);
  io.integer(m.workers);
  io.number(m.rank_hint);
  addresses(io, m.store_addresses);
  fields(io, m.launch);
  fields(io, m.share);
}
void fields(auto& io, is<JobRules> auto& m) {
  integers(io, m.nodes_min, m.nodes_max, m.spares, m.max_restarts);
  io.duration(m.restart_window);
  io.duration(m.restart_backoff.first);
  io.duration(m.restart_backoff.longest);
  io.flag(m.continue_on_failure);
  io.duration(m.join_timeout);
  io.duration(m.last_call);
  io.duration(m.liveness.lease);
  io.duration(m.liveness.reconnect_grace);
}
void fields(auto& io, is<Holding> auto& m) {
  integers(io, m.incarnation, m.epoch, m.attempt, m.node_rank, m.node_count, m.first_rank,
           m.world_size);
}
void fields(auto& io, is<Admission::Entry> auto& m) {
  io.text(m.id);
  io.text(m.host);
  integers(io, m.first_rank, m.workers);
  addresses(io, m.store_addresses);
}
void fields(auto& io, is<Admission> auto& m) {
  integers(io, m.epoch, m.attempt, m.node_rank, m.node_count, m.first_rank, m.local_size,
           m.world_size);
  shared(m.store_addresses, [&](auto& list) { addresses(io, list); });
  constexpr std::size_t entry_bytes_min = 3 * text_bytes_min + 2 * sizeof(std::int32_t);
  shared(m.roster, [&](auto& roster) {
    io.repeat(
        roster, entry_bytes_min, [&](auto& entry) { fields(io, entry); }, roster_max);
  });
  shared(m.again_for, [&](auto& text) { io.text(text); });
  io.flag(m.crowded);
  fields(io, m.memory);
}

void fields(auto& io, is<Join> auto& m) {
  fields(io, m.offer);
  fields(io, m.rules);
  io.maybe(m.holding, [&](auto& holding) { fields(io, holding); });
  io.text(m.version);
}
void fields(auto& io, is<Leave> auto& m) {
  io.integer(m.exit_code);
  io.text(m.reason);
  io.flag(m.closes);
  io.flag(m.ends_job);
}
void fields(auto&, is<Heartbeat> auto&) {}
constexpr std::size_t fact_bytes_min = 23;

/// An age is encoded like a point in time, counted from zero.
void age(auto& io, auto& when) {
  auto since = when.time_since_epoch();
  io.duration(since);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(when)>>) {
    when = Clock::time_point(since);
  }
}

void fields(auto& io, is<Fact> auto& m) {
  io.integer(m.rank);
  io.choice(m.end, Fact::End::failed);
  integers(io, m.exit_code, m.signal);
  io.flag(m.core_dumped);
  age(io, m.when);
  io.maybe(m.claim, [&](auto& claim) { fields(io, claim); });
}
void fields(auto& io, is<RankDetails> auto& m) {
  integers(io, m.rank, m.local_rank);
  io.text(m.node);
  io.text(m.host);
  integers(io, m.pid, m.time_ms);
  io.text(m.error_file);
  io.text(m.message);
  io.repeat(
      m.last_lines, text_bytes_min, [&](auto& line) { io.text(line); }, lines_max);
  io.flag(m.lines_of_both);
}
void fields(auto& io, is<Verdict> auto& m) {
  io.choice(m.kind, Verdict::kind_last);
  io.repeat(
      m.ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); }, roster_max);
  integers(io, m.exit_code, m.code, m.signal);
  io.flag(m.core_dumped);
  io.text(m.doing);
}

void fields(auto& io, is<WorkerFailed> auto& m) {
  io.integer(m.epoch);
  fields(io, m.fact);
}
void fields(auto& io, is<WorkerLeft> auto& m) { integers(io, m.epoch, m.rank); }
void fields(auto& io, is<WorkersEnded> auto& m) {
  io.integer(m.epoch);
  io.choice(m.outcome, rendezvous::WorkersEnded::Outcome::spawn_failed);
  io.integer(m.exit_code);
  io.text(m.sentence);
  io.repeat(
      m.facts, fact_bytes_min, [&](auto& fact) { fields(io, fact); }, facts_max);
  io.repeat(
      m.left, 2 * sizeof(std::int32_t),
      [&](auto& range) { integers(io, range.first, range.count); }, ranges_max);
  constexpr std::size_t details_bytes_min = 45;
  io.repeat(
      m.details, details_bytes_min, [&](auto& each) { fields(io, each); }, details_max);
}
void fields(auto& io, is<CommunicatorCalls> auto& m) {
  io.integer(m.communicator);
  io.text(m.name);
  integers(io, m.rank, m.ranks, m.begun, m.count, m.digest);
  io.flag(m.heard);
  constexpr std::size_t call_bytes_min = 2 * sizeof(std::uint64_t) + text_bytes_min;
  io.repeat(
      m.last, call_bytes_min,
      [&](auto& call) {
        integers(io, call.sequence, call.digest);
        io.text(call.text);
      },
      calls_max);
}
void fields(auto& io, is<CallsMade> auto& m) {
  io.integer(m.epoch);
  constexpr std::size_t communicator_bytes_min = 4 * sizeof(std::uint64_t) + 4 * text_bytes_min;
  io.repeat(
      m.communicators, communicator_bytes_min, [&](auto& calls) { fields(io, calls); },
      communicators_max);
}
void fields(auto& io, is<RankCalls::Reached> auto& m) {
  integers(io, m.communicator, m.size, m.sequence);
  io.duration(m.age);
}
void fields(auto& io, is<RankCalls> auto& m) {
  io.integer(m.ranks);
  io.choice(m.state, RankCalls::state_last);
  io.text(m.call, call_bytes_max);
  integers(io, m.communicator, m.sequence);
  io.duration(m.age);
  constexpr std::size_t reached_bytes = 3 * sizeof(std::uint64_t) + sizeof(std::int32_t);
  io.repeat(
      m.reached, reached_bytes, [&](auto& each) { fields(io, each); }, reached_max);
}
void fields(auto& io, is<CallsNow> auto& m) {
  io.integer(m.epoch);
  constexpr std::size_t ranks_bytes_min = 3 * sizeof(std::uint64_t) + 3 * text_bytes_min + 1;
  io.repeat(
      m.ranks, ranks_bytes_min, [&](auto& each) { fields(io, each); }, rank_calls_max);
}
void fields(auto& io, is<Ask> auto& m) {
  integers(io, m.epoch, m.number, m.node);
  io.duration(m.patience);
  io.value(m.question);
}
void fields(auto& io, is<Asked> auto& m) {
  integers(io, m.epoch, m.number);
  io.value(m.question);
}
void fields(auto& io, is<Answer> auto& m) {
  integers(io, m.epoch, m.number);
  io.value(m.answer);
}
void fields(auto& io, is<Answered> auto& m) {
  integers(io, m.number, m.node);
  io.value(m.answer);
}
void fields(auto& io, is<AnswerTaken> auto& m) { io.integer(m.number); }
void fields(auto& io, is<HostPlace> auto& m) {
  io.text(m.id);
  io.text(m.host);
  integers(io, m.first_rank, m.workers);
}
void fields(auto& io, is<Admitted> auto& m) {
  io.integer(m.admission.incarnation);
  io.flag(m.hosted);
  fields(io, m.admission);
  io.maybe(m.host, [&](auto& host) { fields(io, host); });
}
void fields(auto& io, is<Refused> auto& m) {
  integers(io, m.code, m.exit_code);
  io.text(m.reason);
}
void fields(auto& io, is<Stopped> auto& m) {
  io.integer(m.epoch);
  io.choice(m.cause, Stop::Cause::evicted);
  io.text(m.reason);
}
void fields(auto& io, is<RanksLost> auto& m) {
  integers(io, m.epoch, m.first_rank, m.count);
  io.text(m.host);
  fields(io, m.how);
}
void fields(auto& io, is<Standing> auto& m) { io.text(m.sentence); }
void fields(auto& io, is<Finished> auto& m) {
  io.integer(m.exit_code);
  io.maybe(m.verdict, [&](auto& verdict) { fields(io, verdict); });
  io.text(m.sentence);
  io.maybe(m.details, [&](auto& details) { fields(io, details); });
  io.choice(m.cause, Finish::Cause::disagreement);
}

void fields(auto& io, is<Standby> auto& m) {
  io.integer(m.epoch);
  io.text(m.address);
}
void fields(auto& io, is<Successor> auto& m) {
  io.integer(m.node_rank);
  io.text(m.address);
}
void fields(auto& io, is<Succession> auto& m) {
  io.integer(m.epoch);
  io.repeat(
      m.order, sizeof(std::int32_t) + text_bytes_min, [&](auto& each) { fields(io, each); },
      successors_max);
}

/// A time as its age, and an age as its time.
void turn(Fact& fact, Clock::time_point now) { fact.when = Clock::time_point(now - fact.when); }

}  // namespace

WorkerFailed told(const rendezvous::WorkerFailed& how, Clock::time_point now) {
  WorkerFailed message{how.epoch, how.fact};
  turn(message.fact, now);
  return message;
}

rendezvous::WorkerFailed heard(const WorkerFailed& how, Session from, Clock::time_point now) {
  rendezvous::WorkerFailed event{from, how.epoch, how.fact};
  turn(event.fact, now);
  return event;
}

WorkersEnded told(const rendezvous::WorkersEnded& how, Clock::time_point now) {
  WorkersEnded message{how.epoch, how.outcome, how.exit_code, how.sentence, {}, {}, how.details};
  for (const bool victims : {false, true}) {
    for (const auto& [rank, fact] : how.facts.ranks) {
      if (fact.blames_others() != victims || message.facts.size() >= facts_max) continue;
      message.facts.push_back(fact);
      turn(message.facts.back(), now);
    }
  }
  for (const auto& [first, count] : how.facts.left) {
    if (message.left.size() < ranges_max) message.left.push_back({first, count});
  }
  message.details.resize(std::min(message.details.size(), details_max));
  for (auto& details : message.details) {
    auto& lines = details.last_lines;
    if (lines.size() > lines_max) lines.erase(lines.begin(), lines.end() - lines_max);
    for (auto& line : lines) line.resize(std::min(line.size(), line_bytes_max));
  }
  return message;
}

rendezvous::WorkersEnded heard(const WorkersEnded& how, Session from, Clock::time_point now) {
  rendezvous::WorkersEnded event{from,         how.epoch, how.outcome, how.exit_code,
                                 how.sentence, {},        how.details};
  for (Fact fact : how.facts) {
    turn(fact, now);
    event.facts.ranks.insert_or_assign(fact.rank, std::move(fact));
  }
  for (const auto& range : how.left) event.facts.add_left(range.first, range.count);
  return event;
}

template <class Message>
void encode(Bytes& out, const Message& message) {
  wire::Writer io(out);
  fields(io, message);
}

template <class Message>
std::optional<Message> decode(BytesView payload) {
  std::optional<Message> message(std::in_place);
  wire::Reader io(payload);
  fields(io, *message);
  if (!io.complete()) message.reset();
  return message;
}

#define DLAUNCH_RENDEZVOUS_MESSAGE(M)                          \
  static_assert(wire::party_of(M::type) == wire::Party::host); \
  template void encode<M>(Bytes&, const M&);                   \
  template std::optional<M> decode<M>(BytesView)
DLAUNCH_RENDEZVOUS_MESSAGE(Join);
DLAUNCH_RENDEZVOUS_MESSAGE(Leave);
DLAUNCH_RENDEZVOUS_MESSAGE(Heartbeat);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkerFailed);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkerLeft);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkersEnded);
DLAUNCH_RENDEZVOUS_MESSAGE(CallsMade);
DLAUNCH_RENDEZVOUS_MESSAGE(CallsNow);
DLAUNCH_RENDEZVOUS_MESSAGE(Ask);
DLAUNCH_RENDEZVOUS_MESSAGE(Asked);
DLAUNCH_RENDEZVOUS_MESSAGE(Answer);
DLAUNCH_RENDEZVOUS_MESSAGE(Answered);
DLAUNCH_RENDEZVOUS_MESSAGE(AnswerTaken);
DLAUNCH_RENDEZVOUS_MESSAGE(Admitted);
DLAUNCH_RENDEZVOUS_MESSAGE(Refused);
DLAUNCH_RENDEZVOUS_MESSAGE(Stopped);
DLAUNCH_RENDEZVOUS_MESSAGE(RanksLost);
DLAUNCH_RENDEZVOUS_MESSAGE(Standing);
DLAUNCH_RENDEZVOUS_MESSAGE(Finished);
DLAUNCH_RENDEZVOUS_MESSAGE(Standby);
DLAUNCH_RENDEZVOUS_MESSAGE(Succession);
#undef DLAUNCH_RENDEZVOUS_MESSAGE

}  // namespace dlaunch::rendezvous::message
