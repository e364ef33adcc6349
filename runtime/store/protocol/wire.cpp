#include "runtime/store/protocol/wire.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/store/protocol/operations.hpp"
#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace dlaunch::wire {
namespace {

constexpr std::array<std::byte, 4> magic{std::byte{'D'}, std::byte{'L'}, std::byte{'C'},
                                         std::byte{'H'}};

// ---- The fields of each message, in order. `M` is the message, const when it is written. ----

void fields(auto&, one_of<Count, Renew, Done, Absent> auto&) {}
void fields(auto& io, one_of<Get, Erase, Watch> auto& m) { io.key(m.key); }
void fields(auto& io, one_of<TryPop, QueueSize> auto& m) { io.key(m.queue); }
void fields(auto& io, is<List> auto& m) { io.key(m.prefix); }
void fields(auto& io, is<Set> auto& m) {
  io.key(m.key);
  io.value(m.value);
}
void fields(auto& io, is<SetLeased> auto& m) {
  io.key(m.key);
  io.value(m.value);
  io.integer(m.lease_ms);
}
void fields(auto& io, one_of<MultiGet, EndLeases, Keys> auto& m) {
  io.repeat(m.keys, sizeof(std::uint32_t), [&](auto& key) { io.key(key); });
}
void fields(auto& io, is<MultiSet> auto& m) {
  io.repeat_pairs(m.keys, m.values, [&](auto& key, auto& value) {
    io.key(key);
    io.value(value);
  });
}
void fields(auto& io, is<Add> auto& m) {
  io.key(m.key);
  io.integer(m.delta);
}
void fields(auto& io, is<CompareSet> auto& m) {
  io.key(m.key);
  io.optional(m.expected);
  io.value(m.desired);
}
void fields(auto& io, is<Append> auto& m) {
  io.key(m.key);
  io.value(m.tail);
}
void fields(auto& io, is<Wait> auto& m) {
  io.integer(m.timeout.microseconds);
  io.repeat(m.keys, sizeof(std::uint32_t), [&](auto& key) { io.key(key); });
}
void fields(auto& io, is<WaitGet> auto& m) {
  io.integer(m.timeout.microseconds);
  io.key(m.key);
}
void fields(auto& io, is<Push> auto& m) {
  io.key(m.queue);
  io.value(m.value);
}
void fields(auto& io, is<Pop> auto& m) {
  io.integer(m.timeout.microseconds);
  io.key(m.queue);
}
void fields(auto& io, is<Cancel> auto& m) { io.integer(m.request); }
void fields(auto& io, is<Barrier> auto& m) {
  io.key(m.name);
  io.integer(m.round);
  io.integer(m.count);
  io.integer(m.timeout.microseconds);
  io.repeat(m.contributors, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); });
}
void fields(auto& io, is<AllGather> auto& m) {
  io.key(m.name);
  io.integer(m.round);
  io.integer(m.count);
  io.integer(m.timeout.microseconds);
  io.repeat_pairs(m.contributors, m.blobs, [&](auto& rank, auto& blob) {
    io.integer(rank);
    io.value(blob);
  });
}
void fields(auto& io, is<Number> auto& m) { io.integer(m.value); }
void fields(auto& io, is<Found> auto& m) { io.value(m.value); }
void fields(auto& io, is<Values> auto& m) {
  io.repeat(m.values, 1, [&](auto& value) { io.optional(value); });
}
void fields(auto& io, is<Compared> auto& m) {
  io.flag(m.stored);
  io.optional(m.current);
}
void fields(auto& io, is<Popped> auto& m) {
  io.integer(m.length_before);
  io.optional(m.value);
}
void fields(auto& io, is<Gathered> auto& m) {
  io.repeat(m.blobs, sizeof(std::uint32_t), [&](auto& blob) { io.value(blob); });
}
void fields(auto& io, is<Changed> auto& m) {
  io.integer(m.kind);
  io.key(m.key);
  io.optional(m.value);
}
void fields(auto& io, one_of<Failed, Abort> auto& m) {
  io.integer(m.code);
  io.text(m.sentence);
}
void fields(auto& io, is<Grant> auto& m) {
  io.flag(m.listener);
  io.integer(m.report_grace_ms);
  io.value(m.data_key);
  io.flag(m.segment);
}
void fields(auto& io, is<Warning> auto& m) { io.text(m.sentence); }
void fields(auto& io, is<Inquire> auto& m) {
  io.repeat(
      m.ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); }, inquired_ranks_max);
}
void fields(auto& io, is<Report> auto& m) {
  io.integer(m.code);
  fields(io, m.claim);
  io.text(m.sentence);
}
void fields(auto& io, is<PeerLost> auto& m) {
  io.integer(m.rank);
  io.text(m.host);
  fields(io, m.how);
}
void fields(auto& io, is<Welcome> auto& m) {
  io.text(m.job);
  io.integer(m.epoch);
  io.integer(m.memory);
}
void fields(auto& io, is<Member> auto& m) {
  io.integer(m.rank);
  io.integer(m.world_size);
  io.integer(m.pid);
  io.text(m.hostname);
}
void fields(auto& io, is<Hello> auto& m) {
  io.integer(m.session);
  io.text(m.job);
  io.maybe(m.member, [&](auto& member) { fields(io, member); });
}

}  // namespace

template <class Message>
void encode(Bytes& out, const Message& message) {
  Writer io(out);
  fields(io, message);
}

template <class Message>
std::optional<Message> decode(BytesView payload) {
  std::optional<Message> message(std::in_place);
  Reader io(payload);
  fields(io, *message);
  if (!io.complete()) message.reset();
  return message;
}

#define DLAUNCH_WIRE_MESSAGE(M)              \
  template void encode<M>(Bytes&, const M&); \
  template std::optional<M> decode<M>(BytesView)
DLAUNCH_WIRE_MESSAGE(Hello);
DLAUNCH_WIRE_MESSAGE(Welcome);
DLAUNCH_WIRE_MESSAGE(Set);
DLAUNCH_WIRE_MESSAGE(SetLeased);
DLAUNCH_WIRE_MESSAGE(Get);
DLAUNCH_WIRE_MESSAGE(MultiGet);
DLAUNCH_WIRE_MESSAGE(MultiSet);
DLAUNCH_WIRE_MESSAGE(Add);
DLAUNCH_WIRE_MESSAGE(CompareSet);
DLAUNCH_WIRE_MESSAGE(Append);
DLAUNCH_WIRE_MESSAGE(Erase);
DLAUNCH_WIRE_MESSAGE(List);
DLAUNCH_WIRE_MESSAGE(Count);
DLAUNCH_WIRE_MESSAGE(Wait);
DLAUNCH_WIRE_MESSAGE(WaitGet);
DLAUNCH_WIRE_MESSAGE(Push);
DLAUNCH_WIRE_MESSAGE(TryPop);
DLAUNCH_WIRE_MESSAGE(Pop);
DLAUNCH_WIRE_MESSAGE(QueueSize);
DLAUNCH_WIRE_MESSAGE(Watch);
DLAUNCH_WIRE_MESSAGE(Cancel);
DLAUNCH_WIRE_MESSAGE(Barrier);
DLAUNCH_WIRE_MESSAGE(AllGather);
DLAUNCH_WIRE_MESSAGE(Renew);
DLAUNCH_WIRE_MESSAGE(EndLeases);
DLAUNCH_WIRE_MESSAGE(Done);
DLAUNCH_WIRE_MESSAGE(Number);
DLAUNCH_WIRE_MESSAGE(Found);
DLAUNCH_WIRE_MESSAGE(Absent);
DLAUNCH_WIRE_MESSAGE(Values);
DLAUNCH_WIRE_MESSAGE(Keys);
DLAUNCH_WIRE_MESSAGE(Compared);
DLAUNCH_WIRE_MESSAGE(Popped);
DLAUNCH_WIRE_MESSAGE(Gathered);
DLAUNCH_WIRE_MESSAGE(Changed);
DLAUNCH_WIRE_MESSAGE(Failed);
DLAUNCH_WIRE_MESSAGE(Grant);
DLAUNCH_WIRE_MESSAGE(Report);
DLAUNCH_WIRE_MESSAGE(PeerLost);
DLAUNCH_WIRE_MESSAGE(Abort);
DLAUNCH_WIRE_MESSAGE(Warning);
DLAUNCH_WIRE_MESSAGE(Inquire);
DLAUNCH_WIRE_MESSAGE(Doing);
#undef DLAUNCH_WIRE_MESSAGE

void encode_frame(Bytes& out, FrameHeader header, BytesView payload) {
  header.length = static_cast<std::uint32_t>(payload.size());
  const std::size_t at = out.size();
  out.resize(at + header_bytes + payload.size());
  std::memcpy(out.data() + at, &header, header_bytes);
  if (!payload.empty()) {
    std::memcpy(out.data() + at + header_bytes, payload.data(), payload.size());
  }
}

void encode_header(Bytes& out, const FrameHeader& header) {
  const std::size_t at = out.size();
  out.resize(at + header_bytes);
  std::memcpy(out.data() + at, &header, header_bytes);
}

void encode_preface(Bytes& out) {
  ByteWriter writer(out);
  writer.raw(magic);
  writer.integer(version);
}

std::optional<std::uint32_t> decode_preface(BytesView bytes) {
  if (bytes.size() < preface_bytes || !std::ranges::equal(bytes.first(magic.size()), magic)) {
    return std::nullopt;
  }
  return ByteReader(bytes.subspan(magic.size())).integer<std::uint32_t>();
}

FrameHeader decode_header(BytesView bytes) {
  FrameHeader header;
  std::memcpy(&header, bytes.data(), header_bytes);
  return header;
}

bool is_store_request(Type type) { return Requests::contains(type); }
bool is_change(Type type) { return Requests::has(type, changes); }

std::chrono::milliseconds SetLeased::lease() const {
  constexpr std::uint64_t longest = std::chrono::milliseconds(std::chrono::hours(24)).count();
  return std::chrono::milliseconds(std::min(lease_ms, longest));
}

Timeout Timeout::until(Clock::time_point deadline, Clock::time_point now) {
  if (deadline == Clock::time_point::max()) return {};
  const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - now).count();
  return {static_cast<std::uint64_t>(std::max<decltype(left)>(left, 0))};
}

Clock::time_point Timeout::deadline(Clock::time_point now) const {
  constexpr std::uint64_t longest =
      std::uint64_t{std::numeric_limits<Clock::duration::rep>::max()} / 1000;
  if (microseconds >= longest) return Clock::time_point::max();
  return deadline_after(std::chrono::microseconds(microseconds), now);
}

}  // namespace dlaunch::wire
