#include "rendezvous/messages.hpp"

#include "runtime/store/wire_codec.hpp"

namespace dlaunch::rendezvous::message {
namespace {

using wire::is;

/// What an empty text takes.
constexpr std::size_t text_bytes_min = sizeof(std::uint32_t);

void addresses(auto& io, auto& list) {
  io.repeat(
      list, text_bytes_min, [&](auto& address) { io.text(address); }, addresses_max);
}

void fields(auto& io, is<Launch> auto& m) {
  io.integer(m.line);
  io.integer(m.start);
}
void fields(auto& io, is<NodeOffer> auto& m) {
  io.text(m.id);
  io.text(m.host);
  io.integer(m.workers);
  io.number(m.rank_hint);
  io.number(m.scheduler_order);
  addresses(io, m.store_addresses);
  fields(io, m.launch);
}
void fields(auto& io, is<JobRules> auto& m) {
  io.integer(m.nodes_min);
  io.integer(m.nodes_max);
  io.integer(m.max_restarts);
  io.flag(m.continue_on_failure);
  io.duration(m.join_timeout);
  io.duration(m.last_call);
  io.duration(m.lease);
  io.duration(m.reconnect_grace);
}
void fields(auto& io, is<Holding> auto& m) {
  io.integer(m.incarnation);
  io.integer(m.epoch);
  io.integer(m.attempt);
  io.integer(m.node_rank);
  io.integer(m.node_count);
  io.integer(m.first_rank);
  io.integer(m.world_size);
}
void fields(auto& io, is<Admission::Entry> auto& m) {
  io.text(m.id);
  io.text(m.host);
  io.integer(m.first_rank);
  io.integer(m.workers);
  addresses(io, m.store_addresses);
}
void fields(auto& io, is<Admission> auto& m) {
  io.integer(m.epoch);
  io.integer(m.attempt);
  io.integer(m.node_rank);
  io.integer(m.node_count);
  io.integer(m.first_rank);
  io.integer(m.local_size);
  io.integer(m.world_size);
  addresses(io, m.store_addresses);
  constexpr std::size_t entry_bytes_min = 3 * text_bytes_min + 2 * sizeof(std::int32_t);
  io.repeat(
      m.roster, entry_bytes_min, [&](auto& entry) { fields(io, entry); }, roster_max);
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
}
void fields(auto&, is<Heartbeat> auto&) {}
void fields(auto& io, is<WorkerFailed> auto& m) {
  io.integer(m.epoch);
  io.integer(m.rank);
  io.text(m.cause);
  io.flag(m.consequence);
  io.number(m.blamed);
}
void fields(auto& io, is<WorkerLeft> auto& m) {
  io.integer(m.epoch);
  io.integer(m.rank);
}
void fields(auto& io, is<WorkersEnded> auto& m) {
  io.integer(m.epoch);
  io.choice(m.outcome, rendezvous::WorkersEnded::Outcome::spawn_failed);
  io.integer(m.exit_code);
  io.number(m.root_cause);
  io.flag(m.consequence);
  io.text(m.sentence);
  io.number(m.blamed);
}
void fields(auto& io, is<CommunicatorCalls> auto& m) {
  io.integer(m.communicator);
  io.text(m.name);
  io.integer(m.rank);
  io.integer(m.begun);
  io.integer(m.count);
  io.integer(m.digest);
  io.flag(m.heard);
  io.text(m.disagreement);
  constexpr std::size_t call_bytes_min = 2 * sizeof(std::uint64_t) + text_bytes_min;
  io.repeat(
      m.last, call_bytes_min,
      [&](auto& call) {
        io.integer(call.sequence);
        io.integer(call.digest);
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
void fields(auto& io, is<HostPlace> auto& m) {
  io.text(m.id);
  io.text(m.host);
  io.integer(m.first_rank);
  io.integer(m.workers);
}
void fields(auto& io, is<Admitted> auto& m) {
  io.integer(m.incarnation);
  io.flag(m.hosted);
  fields(io, m.admission);
  io.maybe(m.host, [&](auto& host) { fields(io, host); });
}
void fields(auto& io, is<Refused> auto& m) {
  io.integer(m.code);
  io.integer(m.exit_code);
  io.text(m.reason);
}
void fields(auto& io, is<Stopped> auto& m) {
  io.integer(m.epoch);
  io.choice(m.cause, Stop::Cause::evicted);
  io.text(m.reason);
}
void fields(auto& io, is<RanksLost> auto& m) {
  io.integer(m.epoch);
  io.integer(m.first_rank);
  io.integer(m.count);
  io.text(m.host);
  io.text(m.cause);
}
void fields(auto& io, is<Standing> auto& m) { io.text(m.sentence); }
void fields(auto& io, is<Finished> auto& m) {
  io.integer(m.exit_code);
  io.number(m.root_cause);
  io.text(m.sentence);
}

}  // namespace

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

#define DLAUNCH_RENDEZVOUS_MESSAGE(M)        \
  template void encode<M>(Bytes&, const M&); \
  template std::optional<M> decode<M>(BytesView)
DLAUNCH_RENDEZVOUS_MESSAGE(Join);
DLAUNCH_RENDEZVOUS_MESSAGE(Leave);
DLAUNCH_RENDEZVOUS_MESSAGE(Heartbeat);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkerFailed);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkerLeft);
DLAUNCH_RENDEZVOUS_MESSAGE(WorkersEnded);
DLAUNCH_RENDEZVOUS_MESSAGE(CallsMade);
DLAUNCH_RENDEZVOUS_MESSAGE(Admitted);
DLAUNCH_RENDEZVOUS_MESSAGE(Refused);
DLAUNCH_RENDEZVOUS_MESSAGE(Stopped);
DLAUNCH_RENDEZVOUS_MESSAGE(RanksLost);
DLAUNCH_RENDEZVOUS_MESSAGE(Standing);
DLAUNCH_RENDEZVOUS_MESSAGE(Finished);
#undef DLAUNCH_RENDEZVOUS_MESSAGE

}  // namespace dlaunch::rendezvous::message
