#include "launcher/watch/core/questions.hpp"

#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace dlaunch::launcher {
namespace {

using wire::integers;
using wire::is;
using wire::one_of;

/// Sent along, since `dlaunch status` may be of another version than the job.
constexpr std::uint32_t snapshot_version = 1;

constexpr std::size_t text_bytes_min = sizeof(std::uint32_t);
constexpr std::uint64_t ranks_max = 1u << 20;
constexpr std::size_t nodes_max = 1u << 16;
/// The largest age. Sums and differences of times within it do not overflow.
constexpr std::chrono::nanoseconds age_max = std::chrono::hours(24 * 365 * 100);

/// A time travels as its age in nanoseconds when the snapshot was taken; the reader's clock begins
/// at that moment.
void moment(auto& io, auto& at, Clock::time_point taken) {
  auto age = static_cast<std::uint64_t>(std::max((taken - at).count(), Clock::rep{0}));
  io.count(age, static_cast<std::uint64_t>(age_max.count()));
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(at)>>) {
    at = taken - std::chrono::nanoseconds(age);
  }
}

/// Microseconds since 1970.
void moment(auto& io, auto& wall) {
  auto since = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(wall.time_since_epoch()).count());
  io.count(since, static_cast<std::uint64_t>(age_max.count() / 1000));
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(wall)>>) {
    wall = WallClock::time_point(std::chrono::microseconds(since));
  }
}

void fields(auto& io, is<FlightCall> auto& m, Clock::time_point taken) {
  integers(io, m.number, m.op, m.dtype, m.reduction);
  io.choice(m.kind, Flight::Kind::aside);
  integers(io, m.communicator, m.sequence, m.count, m.place, m.argument, m.traffic);
  moment(io, m.began, taken);
  io.maybe(m.ended, [&](auto& ended) { moment(io, ended, taken); });
  io.flag(m.failed);
}
constexpr std::size_t call_bytes_min = 56;

void fields(auto& io, is<FlightWait> auto& m, Clock::time_point taken) {
  moment(io, m.since, taken);
  io.integer(m.whom);
  fields(io, m.call, taken);
}

void fields(auto& io, is<FlightGroup> auto& m) {
  io.flag(m.ended);
  integers(io, m.communicator, m.begun, m.rank, m.size);
  io.text(m.name);
}

void fields(auto& io, is<CallNames> auto& m) {
  for (auto* text :
       {&m.op, &m.owner, &m.purpose, &m.dtype, &m.reduction, &m.site, &m.group, &m.full}) {
    io.text(*text);
  }
}

/// Calls, and beside them their names.
void with_names(auto& io, auto& calls, auto& names, Clock::time_point taken) {
  constexpr std::size_t bytes_min = call_bytes_min + 8 * text_bytes_min;
  io.repeat(calls, bytes_min, [&](auto& call) { fields(io, call, taken); });
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(names)>>) {
    names.resize(calls.size());
  }
  for (auto& each : names) fields(io, each);
}

void fields(auto& io, is<RankSight> auto& m, Clock::time_point taken) {
  integers(io, m.rank, m.pid);
  io.choice(m.state, RankSight::State::ended);
  io.flag(m.traced);
  io.flag(m.member);
  io.text(m.end);
  io.maybe(m.ended, [&](auto& ended) { moment(io, ended, taken); });
  io.text(m.doing);
  io.integer(m.log.begun);
  constexpr std::size_t group_bytes_min = 29;
  io.repeat(m.log.groups, group_bytes_min, [&](auto& group) { fields(io, group); });
  with_names(io, m.log.waits, m.wait_names, taken);
  with_names(io, m.log.calls, m.call_names, taken);
}

void fields(auto& io, is<NodeSnapshot> auto& m) {
  io.text(m.job);
  io.text(m.node);
  io.text(m.host);
  integers(io, m.agent, m.node_rank, m.node_count, m.epoch, m.attempt);
  io.count(m.world_size, ranks_max);
  io.text(m.standing);
  io.text(m.stuck);
  moment(io, m.wall);
  constexpr std::size_t rank_bytes_min = 40;
  io.repeat(m.ranks, rank_bytes_min, [&](auto& rank) { fields(io, rank, m.taken); });
}

void fields(auto& io, is<JobSnapshot> auto& m) {
  constexpr std::size_t node_bytes_min = 60;
  io.repeat(
      m.nodes, node_bytes_min, [&](auto& node) { fields(io, node); }, nodes_max);
}

void fields(auto& io, is<CallWait> auto& m) {
  integers(io, m.communicator, m.sequence, m.rank, m.turn, m.whom);
  io.count(m.group_size, ranks_max);
  for (auto& term : m.terms) io.integer(term);
  io.text(m.call);
  io.duration(m.waited);
  io.count(m.waiting, ranks_max);
  io.flag(m.is_over);
}

void rank_list(auto& io, auto& ranks) {
  io.repeat(ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); });
}

void fields(auto& io, is<StuckPart> auto& m) {
  rank_list(io, m.waiting);
  io.repeat(m.absent, sizeof(std::int32_t) + text_bytes_min, [&](auto& absent) {
    io.integer(absent.first);
    io.text(absent.second);
  });
  io.count(m.known, ranks_max);
}

void fields(auto& io, is<CallWaits> auto& m) {
  constexpr std::size_t wait_bytes_min = 90;
  io.repeat(m.waits, wait_bytes_min, [&](auto& wait) { fields(io, wait); });
}
void fields(auto&, is<Looking> auto&) {}
void fields(auto& io, is<NodeProgress> auto& m) {
  io.duration(m.unseen);
  io.maybe(m.undeclared, [&](auto& time) { io.duration(time); });
  io.repeat(
      m.doing, sizeof(std::int32_t) + text_bytes_min,
      [&](auto& rank) {
        io.integer(rank.first);
        io.text(rank.second);
      },
      NodeProgress::doing_max);
}
void fields(auto&, is<Ending> auto&) {}
void fields(auto&, is<Waiting> auto&) {}

void fields(auto& io, is<AskSnapshot> auto& m) { io.choice(m.detail, AskSnapshot::Detail::flight); }
void fields(auto&, is<AskWaits> auto&) {}
void fields(auto& io, is<AskPart> auto& m) { fields(io, m.wait); }
void fields(auto& io, is<AskDoing> auto& m) {
  io.repeat(
      m.ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); },
      wire::inquired_ranks_max);
}
void fields(auto&, is<AskLook> auto&) {}
void fields(auto&, is<AskProgress> auto&) {}
void fields(auto& io, is<AskEnd> auto& m) { io.text(m.sentence); }
void fields(auto& io, is<AskTime> auto& m) { io.duration(m.time); }

void fields(auto& io, one_of<Question, Answer> auto& m) {
  io.kind(m, [&](auto& kind) { fields(io, kind); });
}

template <class Value>
std::optional<Value> decoded(BytesView bytes) {
  std::optional<Value> value(std::in_place);
  wire::Reader io(bytes);
  fields(io, *value);
  if (!io.complete()) value.reset();
  return value;
}

template <class Value>
Bytes encoded(const Value& value) {
  Bytes out;
  wire::Writer io(out);
  fields(io, value);
  return out;
}

}  // namespace

Bytes encode(const Question& question) { return encoded(question); }
Bytes encode(const Answer& answer) { return encoded(answer); }

Bytes encode(const JobSnapshot& job) {
  Bytes out;
  wire::Writer io(out);
  io.integer(snapshot_version);
  fields(io, job);
  return out;
}

std::optional<Question> decode_question(BytesView bytes) { return decoded<Question>(bytes); }

std::optional<Answer> decode_answer(BytesView bytes) { return decoded<Answer>(bytes); }

std::optional<JobSnapshot> decode_snapshot(BytesView bytes) {
  if (ByteReader(bytes).integer<std::uint32_t>() != snapshot_version) return std::nullopt;
  return decoded<JobSnapshot>(bytes.subspan(sizeof snapshot_version));
}

}  // namespace dlaunch::launcher
