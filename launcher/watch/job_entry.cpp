#include "launcher/watch/job_entry.hpp"

#include "runtime/store/protocol/wire_codec.hpp"

#include <chrono>
#include <type_traits>

namespace dlaunch::launcher {
namespace {

using wire::is;

/// Each answer begins with a number of its own: the launcher that is asked may be of another
/// version, and answer with something else.
constexpr std::uint32_t entry_mark = 0x01'656e74, ranks_mark = 0x01'726e6b,
                        waits_mark = 0x01'776174, drained_mark = 0x01'647261,
                        farewell_mark = 0x01'656e64, stop_mark = 0x01'737470;
constexpr std::uint32_t mark_of(const JobEntry&) { return entry_mark; }
constexpr std::uint32_t mark_of(const JobRanks&) { return ranks_mark; }
constexpr std::uint32_t mark_of(const JobStoreWaits&) { return waits_mark; }
constexpr std::uint32_t mark_of(const JobDrained&) { return drained_mark; }
constexpr std::uint32_t mark_of(const JobFarewell&) { return farewell_mark; }
constexpr std::uint32_t mark_of(const JobStopAsked&) { return stop_mark; }

constexpr std::uint64_t wall_us_max = std::uint64_t{1} << 53;

void fields(auto& io, is<JobEntry> auto& m) {
  io.text(m.job);
  io.text(m.node);
  io.text(m.host);
  io.choice(m.state, JobState::ended);
  wire::integers(io, m.ranks_here, m.world_size, m.attempt, m.front_started);
  auto since = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(m.began.time_since_epoch()).count());
  io.count(since, wall_us_max);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(m)>>) {
    m.began = WallClock::time_point(std::chrono::microseconds(since));
  }
  io.text(m.program);
}

void fields(auto& io, is<JobRanks> auto& m) {
  constexpr std::size_t rank_bytes_min = 28;
  io.repeat(m.ranks, rank_bytes_min, [&](auto& rank) {
    wire::integers(io, rank.rank, rank.pid);
    io.text(rank.prefix);
    io.text(rank.out_file);
    io.text(rank.err_file);
    for (auto* spans : {&rank.out_spans, &rank.err_spans}) {
      io.repeat(*spans, 2 * sizeof(std::uint64_t),
                [&](auto& span) { wire::integers(io, span.begin, span.age_ms); });
    }
  });
}

void fields(auto& io, is<JobStoreWaits> auto& m) {
  constexpr std::size_t wait_bytes_min = 44;
  io.repeat(m.waits, wait_bytes_min, [&](auto& wait) {
    wire::integers(io, wait.rank, wait.more, wait.for_ms, wait.arrived, wait.expected);
    io.text(wait.client);
    io.repeat(wait.keys, sizeof(std::uint32_t), [&](auto& key) { io.text(key); });
  });
  io.flag(m.elsewhere);
  wire::integers(io, m.left_out, m.world_size);
}

void fields(auto& io, is<JobDrained> auto& m) {
  io.choice(m.then, JobDrained::Then::only_node);
  wire::integers(io, m.nodes_left, m.nodes_least);
}

void fields(auto& io, is<JobFarewell> auto& m) { io.integer(m.exit_code); }

void fields(auto& io, is<JobStopAsked> auto& m) { io.flag(m.just_asked); }

template <class Value>
Bytes marked(const Value& value) {
  Bytes out;
  wire::Writer io(out);
  io.integer(mark_of(value));
  fields(io, value);
  return out;
}

template <class Value>
std::optional<Value> unmarked(BytesView bytes) {
  Value value;
  if (ByteReader(bytes).integer<std::uint32_t>() != mark_of(value)) return std::nullopt;
  wire::Reader io(bytes.subspan(sizeof(std::uint32_t)));
  fields(io, value);
  if (!io.complete()) return std::nullopt;
  return value;
}

}  // namespace

Bytes encode(const JobEntry& entry) { return marked(entry); }
Bytes encode(const JobRanks& ranks) { return marked(ranks); }
Bytes encode(const JobStoreWaits& waits) { return marked(waits); }
Bytes encode(const JobDrained& drained) { return marked(drained); }
Bytes encode(const JobFarewell& farewell) { return marked(farewell); }
Bytes encode(const JobStopAsked& asked) { return marked(asked); }

std::optional<JobEntry> decode_entry(BytesView bytes) { return unmarked<JobEntry>(bytes); }
std::optional<JobRanks> decode_ranks(BytesView bytes) { return unmarked<JobRanks>(bytes); }
std::optional<JobStoreWaits> decode_store_waits(BytesView bytes) {
  return unmarked<JobStoreWaits>(bytes);
}
std::optional<JobDrained> decode_drained(BytesView bytes) { return unmarked<JobDrained>(bytes); }
std::optional<JobFarewell> decode_farewell(BytesView bytes) { return unmarked<JobFarewell>(bytes); }
std::optional<JobStopAsked> decode_stop_asked(BytesView bytes) {
  return unmarked<JobStopAsked>(bytes);
}

}  // namespace dlaunch::launcher
