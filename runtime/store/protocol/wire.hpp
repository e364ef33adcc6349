#pragma once

#include "runtime/base/doing.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/protocol/wire_codec.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The native protocol, version 2, as docs/wire.md describes it: encode and decode, no I/O. Each
/// side opens with the preface "DLCH" + u32 version; then frames, each a 24-byte header and
/// `length` bytes of payload. Little-endian.
namespace dlaunch::wire {

/// The store's requests are messages, too.
using namespace store::request;

constexpr std::uint32_t version = 2;
constexpr std::size_t preface_bytes = 8;
constexpr std::size_t header_bytes = 24;
constexpr std::size_t frame_bytes_max = 16u << 20;
constexpr std::size_t keys_per_request_max = 128u << 10;
/// The longest frame that is read before HELLO is accepted.
constexpr std::size_t unauthenticated_bytes_max = 1u << 10;
/// A client has at most this many changes unanswered (set, add, push, pop and the like), and a
/// server remembers at least this many of a session's answers, so that a repeated change counts
/// once.
constexpr std::size_t unanswered_changes_max = 256;

/// The party that a message concerns. Numbers outside of all ranges belong to nobody.
enum class Party : std::uint8_t {
  connection,  ///< Both ends of every connection.
  store,       ///< A namespace: store::request has them.
  host,        ///< The server's host, which gets them unread.
  answer,      ///< The client that asked.
};
struct TypeRange {
  std::uint16_t first;
  std::uint16_t last;
  Party party;
};
constexpr std::array type_ranges{
    TypeRange{1, 15, Party::connection},
    TypeRange{16, 63, Party::store},
    TypeRange{64, 127, Party::host},
    TypeRange{128, 159, Party::answer},
};
static_assert(std::ranges::adjacent_find(type_ranges, [](const TypeRange& a, const TypeRange& b) {
                return a.last >= b.first || a.first > a.last;
              }) == type_ranges.end());

constexpr std::optional<Party> party_of(Type type) {
  for (const TypeRange& range : type_ranges) {
    const auto number = static_cast<std::uint16_t>(type);
    if (range.first <= number && number <= range.last) return range.party;
  }
  return std::nullopt;
}

/// The messages of this file.
enum class Type : std::uint16_t {
  hello = 1,
  welcome,
  goodbye,
  ping,
  // agent and worker
  grant = 64,
  ready,
  group,
  report,
  peer_lost,
  abort,
  warning,
  inquire,
  doing,
  // answers
  done = 128,
  number,
  found,
  absent,
  values,
  keys,
  compared,
  popped,
  gathered,
  changed,
  failed,
  page,
};

/// In FrameHeader::flags.
constexpr std::uint16_t reply = 1;  ///< Answers the request of that number.
constexpr std::uint16_t more = 2;   ///< A watch: further answers will come.
/// The upper byte counts the descriptors that come with the frame, on a unix socket.
constexpr unsigned descriptors_shift = 8;

struct FrameHeader {
  std::uint32_t length = 0;  ///< The length of the payload.
  Type type{};
  std::uint16_t flags = 0;
  std::uint64_t request = 0;  ///< 0: pushed, nobody asked.
  std::uint64_t epoch = 0;    ///< 0: does not care.

  std::size_t descriptors() const { return flags >> descriptors_shift; }
  bool operator==(const FrameHeader&) const = default;
};
static_assert(sizeof(FrameHeader) == header_bytes, "written and read as it lies in memory");

// ---- Messages. Views point into the payload that was decoded. ----

/// A rank's description of itself.
struct Member {
  int rank = 0;
  int world_size = 1;
  std::int64_t pid = 0;
  std::string hostname;
  static auto fields(auto& m) { return in_order(m.rank, m.world_size, m.pid, m.hostname); }
  bool operator==(const Member&) const = default;
};
/// First message of a client. A rank that takes part in a world is a member; a plain client (a
/// tool, an agent later) has no rank.
struct Hello {
  static constexpr Type type = Type::hello;
  std::uint64_t session =
      0;            ///< Random; the same after a reconnect, so retries count once. 0: none.
  std::string job;  ///< Empty: whatever job lives here.
  using Member = wire::Member;
  std::optional<Member> member;
  static auto fields(auto& m) { return in_order(m.session, m.job, m.member); }
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  static constexpr Type type = Type::welcome;
  std::string job;
  std::uint64_t epoch = 0;
  /// A number that stands for the store's contents; if it differs after a reconnect, they were
  /// forgotten.
  std::uint64_t memory = 0;
  static auto fields(auto& m) { return in_order(m.job, m.epoch, m.memory); }
  bool operator==(const Welcome&) const = default;
};

// ---- Answers ----

struct Done {
  static constexpr Type type = Type::done;
};
struct Number {
  static constexpr Type type = Type::number;
  std::int64_t value = 0;
  static auto fields(auto& m) { return in_order(m.value); }
};
struct Found {
  static constexpr Type type = Type::found;
  BytesView value;
  static auto fields(auto& m) { return in_order(m.value); }
};
struct Absent {
  static constexpr Type type = Type::absent;
};
struct Values {
  static constexpr Type type = Type::values;
  std::vector<std::optional<BytesView>> values;
  static auto fields(auto& m) { return in_order(m.values); }
};
struct Keys {
  static constexpr Type type = Type::keys;
  std::vector<std::string_view> keys;
  static auto fields(auto& m) { return in_order(m.keys); }
};
/// A part of a list: `more` says that there are keys behind these.
struct Page {
  static constexpr Type type = Type::page;
  bool more = false;
  std::vector<std::string_view> keys;
  static auto fields(auto& m) { return in_order(m.more, m.keys); }
};
struct Compared {
  static constexpr Type type = Type::compared;
  bool stored = false;
  std::optional<BytesView> current;
  static auto fields(auto& m) { return in_order(m.stored, m.current); }
};
struct Popped {
  static constexpr Type type = Type::popped;
  std::int64_t length_before = 0;
  std::optional<BytesView> value;
  static auto fields(auto& m) { return in_order(m.length_before, m.value); }
};
/// The payload is a u32 count and then store::Gathered's block as it is.
struct Gathered {
  static constexpr Type type = Type::gathered;
  std::vector<BytesView> blobs;
  static auto fields(auto& m) { return in_order(m.blobs); }
};
struct Changed {
  static constexpr Type type = Type::changed;
  KeyChange::Kind kind{};
  std::string_view key;
  std::optional<BytesView> value;
  static auto fields(auto& m) { return in_order(m.kind, m.key, m.value); }
};
struct Failed {
  static constexpr Type type = Type::failed;
  Errc code{};
  std::string sentence;
  static auto fields(auto& m) { return in_order(m.code, m.sentence); }
};

/// Agent to worker, with the descriptors by SCM_RIGHTS in this order: data-plane listener,
/// segment.
struct Grant {
  static constexpr Type type = Type::grant;
  bool listener = false;  ///< A listening TCP socket for this worker's mesh comes along.
  std::uint32_t report_grace_ms = 0;
  /// The key that the ranks of this epoch prove to each other; empty: none is asked for.
  Bytes data_key = {};
  bool segment = false;  ///< The memory that the ranks of the node share comes along.
  static auto fields(auto& m) {
    return in_order(m.listener, m.report_grace_ms, m.data_key, m.segment);
  }
  bool operator==(const Grant&) const = default;
};
/// Worker to agent: a call failed. Ends the failure grace for this worker.
struct Report {
  static constexpr Type type = Type::report;
  Errc code{};
  Claim claim;
  std::string sentence;
  static auto fields(auto& m) { return in_order(m.code, m.claim, m.sentence); }
  bool operator==(const Report&) const = default;
};
/// Agent (or the rank-0 host) to everyone: a rank is gone.
struct PeerLost {
  static constexpr Type type = Type::peer_lost;
  std::int32_t rank = -1;
  std::string host;
  Departure how;
  static auto fields(auto& m) { return in_order(m.rank, m.host, m.how); }
  bool operator==(const PeerLost&) const = default;
};
struct Abort {
  static constexpr Type type = Type::abort;
  Errc code{};
  std::string sentence;
  static auto fields(auto& m) { return in_order(m.code, m.sentence); }
  bool operator==(const Abort&) const = default;
};

/// Worker to agent: a sentence that its user should read; the worker goes on.
struct Warning {
  static constexpr Type type = Type::warning;
  std::string sentence;
  static auto fields(auto& m) { return in_order(m.sentence); }
  bool operator==(const Warning&) const = default;
};

/// Worker to agent: what are these ranks of other nodes doing? The agent asks theirs.
struct Inquire {
  static constexpr Type type = Type::inquire;
  std::vector<std::int32_t> ranks;
  bool operator==(const Inquire&) const = default;
};
/// Agent to worker, once for each inquiry: the activity of the ranks whose agents have answered in
/// time.
struct Doing {
  static constexpr Type type = Type::doing;
  struct Seen {
    std::int32_t rank = 0;
    SeenDoing doing;
    static auto fields(auto& m) { return in_order(m.rank, m.doing); }
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> ranks;
  bool operator==(const Doing&) const = default;
};
/// The limit of an inquiry, and of its answer.
constexpr std::size_t inquired_ranks_max = 64;

void fields(auto& io, is<Inquire> auto& m) {
  io.repeat(
      m.ranks, sizeof(std::int32_t), [&](auto& rank) { io.integer(rank); }, inquired_ranks_max);
}
void fields(auto& io, is<Doing> auto& m) {
  constexpr std::size_t seen_bytes = 2 * sizeof(std::int32_t) + 2 * sizeof(std::uint64_t) + 1;
  io.repeat(
      m.ranks, seen_bytes, [&](auto& seen) { field(io, seen); }, inquired_ranks_max);
}

/// Appends header and payload; the header's length and type are filled in.
template <class Message>
requires requires { Message::type; }
void encode_frame(Bytes& out, FrameHeader header, const Message& message) {
  const std::size_t at = out.size();
  out.resize(at + header_bytes);
  encode(out, message);
  header.type = Message::type;
  header.length = static_cast<std::uint32_t>(out.size() - at - header_bytes);
  std::memcpy(out.data() + at, &header, header_bytes);
}
/// Appends header and a payload that was encoded before.
void encode_frame(Bytes& out, FrameHeader header, BytesView payload);

/// Appends a header as it is.
void encode_header(Bytes& out, const FrameHeader& header);
void encode_preface(Bytes& out);
/// The version the other side speaks; nullopt where the bytes are not a preface.
std::optional<std::uint32_t> decode_preface(BytesView bytes);
/// Takes at least header_bytes.
FrameHeader decode_header(BytesView bytes);

/// Whether it asks something of a key-value namespace.
bool is_store_request(Type type);
/// Whether to repeat it changes something a second time, so that the answer is remembered.
bool is_change(Type type);

}  // namespace dlaunch::wire
