#pragma once

#include "runtime/base/bytes.hpp"
#include "runtime/base/departure.hpp"
#include "runtime/base/doing.hpp"
#include "runtime/base/verdict.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The native protocol, version 2, as docs/wire.md describes it: encode and decode, no I/O. Each
/// side opens with the preface "DLCH" + u32 version; then frames, each a 24-byte header and
/// `length` bytes of payload. Little-endian.
namespace dlaunch::wire {

constexpr std::uint32_t version = 2;
constexpr std::size_t preface_bytes = 8;
constexpr std::size_t header_bytes = 24;
constexpr std::size_t frame_bytes_max = 16u << 20;
constexpr std::size_t key_bytes_max = 8u << 10;
constexpr std::size_t value_bytes_max = 8u << 20;
constexpr std::size_t keys_per_request_max = 128u << 10;
/// Sentences, job ids, host names: what is meant for people.
constexpr std::size_t text_bytes_max = 4u << 10;
/// Before HELLO is accepted, nothing longer is read.
constexpr std::size_t unauthenticated_bytes_max = 1u << 10;
/// A client has at most this many changes unanswered (set, add, push, pop and the like), and a
/// server remembers at least this many of a session's answers, so that a repeated change counts
/// once.
constexpr std::size_t unanswered_changes_max = 256;

enum class Type : std::uint16_t {
  hello = 1,
  welcome,
  goodbye,
  ping,
  // store requests
  set = 16,
  set_leased,
  get,
  multi_get,
  multi_set,
  add,
  compare_set,
  append,
  erase,
  list,
  count,
  wait,
  wait_get,
  push,
  try_pop,
  pop,
  queue_size,
  watch,
  cancel,
  barrier,
  all_gather,
  renew,
  end_leases,
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
  // agent and rendezvous; their payloads are rendezvous/service/messages.hpp's
  join = 96,
  leave,
  heartbeat,
  worker_failed,
  workers_ended,
  admitted,
  refused,
  stop,
  ranks_lost,
  standing,
  finished,
  worker_left,
  calls_made,
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

/// A rank, as it says itself.
struct Member {
  int rank = 0;
  int world_size = 1;
  std::int64_t pid = 0;
  std::string hostname;
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
  bool operator==(const Hello&) const = default;
};
struct Welcome {
  static constexpr Type type = Type::welcome;
  std::string job;
  std::uint64_t epoch = 0;
  /// Stands for the store's contents: another number after a reconnect means that they were
  /// forgotten.
  std::uint64_t memory = 0;
  bool operator==(const Welcome&) const = default;
};

/// How long the server waits before it answers `failed` with Errc::timeout.
struct Timeout {
  static constexpr std::uint64_t none = ~std::uint64_t{0};
  std::uint64_t microseconds = none;

  static Timeout until(Clock::time_point deadline, Clock::time_point now);
  Clock::time_point deadline(Clock::time_point now) const;
  bool operator==(const Timeout&) const = default;
};

struct Set {
  static constexpr Type type = Type::set;
  std::string_view key;
  BytesView value;
};
struct SetLeased {
  static constexpr Type type = Type::set_leased;
  std::string_view key;
  BytesView value;
  std::uint64_t lease_ms = 0;

  std::chrono::milliseconds lease() const;
};
struct Get {
  static constexpr Type type = Type::get;
  std::string_view key;
};
struct MultiGet {
  static constexpr Type type = Type::multi_get;
  std::vector<std::string_view> keys;
};
struct MultiSet {
  static constexpr Type type = Type::multi_set;
  std::vector<std::string_view> keys;
  std::vector<BytesView> values;  ///< One for each key.
};
struct Add {
  static constexpr Type type = Type::add;
  std::string_view key;
  std::int64_t delta = 0;
};
struct CompareSet {
  static constexpr Type type = Type::compare_set;
  std::string_view key;
  std::optional<BytesView> expected;
  BytesView desired;
};
struct Append {
  static constexpr Type type = Type::append;
  std::string_view key;
  BytesView tail;
};
struct Erase {
  static constexpr Type type = Type::erase;
  std::string_view key;
};
struct List {
  static constexpr Type type = Type::list;
  std::string_view prefix;
};
struct Count {
  static constexpr Type type = Type::count;
};
struct Wait {
  static constexpr Type type = Type::wait;
  Timeout timeout;
  std::vector<std::string_view> keys;
};
struct WaitGet {
  static constexpr Type type = Type::wait_get;
  Timeout timeout;
  std::string_view key;
};
struct Push {
  static constexpr Type type = Type::push;
  std::string_view queue;
  BytesView value;
};
struct TryPop {
  static constexpr Type type = Type::try_pop;
  std::string_view queue;
};
struct Pop {
  static constexpr Type type = Type::pop;
  Timeout timeout;
  std::string_view queue;
};
struct QueueSize {
  static constexpr Type type = Type::queue_size;
  std::string_view queue;
};
struct Watch {
  static constexpr Type type = Type::watch;
  std::string_view key;
};
/// Ends a wait or a watch of this connection without an answer to it.
struct Cancel {
  static constexpr Type type = Type::cancel;
  std::uint64_t request = 0;
};
struct Barrier {
  static constexpr Type type = Type::barrier;
  std::string_view name;
  std::uint64_t round = 0;
  std::int32_t count = 0;
  Timeout timeout;
  std::vector<std::int32_t> contributors;
};
struct AllGather {
  static constexpr Type type = Type::all_gather;
  std::string_view name;
  std::uint64_t round = 0;
  std::int32_t count = 0;
  Timeout timeout;
  std::vector<std::int32_t> contributors;
  std::vector<BytesView> blobs;  ///< One for each contributor.
};
/// The leases of this session go on.
struct Renew {
  static constexpr Type type = Type::renew;
};
/// Those of these keys that this session still leases go at once: who held them for the session's
/// owner is gone.
struct EndLeases {
  static constexpr Type type = Type::end_leases;
  std::vector<std::string_view> keys;
};

struct Done {
  static constexpr Type type = Type::done;
};
struct Number {
  static constexpr Type type = Type::number;
  std::int64_t value = 0;
};
struct Found {
  static constexpr Type type = Type::found;
  BytesView value;
};
struct Absent {
  static constexpr Type type = Type::absent;
};
struct Values {
  static constexpr Type type = Type::values;
  std::vector<std::optional<BytesView>> values;
};
struct Keys {
  static constexpr Type type = Type::keys;
  std::vector<std::string_view> keys;
};
struct Compared {
  static constexpr Type type = Type::compared;
  bool stored = false;
  std::optional<BytesView> current;
};
struct Popped {
  static constexpr Type type = Type::popped;
  std::int64_t length_before = 0;
  std::optional<BytesView> value;
};
/// The payload is a u32 count and then store::Gathered's block as it is.
struct Gathered {
  static constexpr Type type = Type::gathered;
  std::vector<BytesView> blobs;
};
struct Changed {
  static constexpr Type type = Type::changed;
  KeyChange::Kind kind{};
  std::string_view key;
  std::optional<BytesView> value;
};
struct Failed {
  static constexpr Type type = Type::failed;
  Errc code{};
  std::string sentence;
};

/// Agent to worker, with the descriptors by SCM_RIGHTS in this order: data-plane listener,
/// segment.
struct Grant {
  static constexpr Type type = Type::grant;
  bool listener = false;  ///< A listening TCP socket for this worker's mesh comes along.
  std::uint32_t report_grace_ms = 0;
  /// The ranks of this epoch prove to each other that they know this key; empty: not asked for.
  Bytes data_key = {};
  bool segment = false;  ///< The memory that the ranks of the node share comes along.
  bool operator==(const Grant&) const = default;
};
/// Worker to agent: a call failed. Ends the failure grace for this worker.
struct Report {
  static constexpr Type type = Type::report;
  Errc code{};
  Claim claim;
  std::string sentence;
  bool operator==(const Report&) const = default;
};
/// Agent (or the rank-0 host) to everyone: a rank is gone.
struct PeerLost {
  static constexpr Type type = Type::peer_lost;
  std::int32_t rank = -1;
  std::string host;
  Departure how;
  bool operator==(const PeerLost&) const = default;
};
struct Abort {
  static constexpr Type type = Type::abort;
  Errc code{};
  std::string sentence;
  bool operator==(const Abort&) const = default;
};

/// Worker to agent: something its user should read, though the worker goes on.
struct Warning {
  static constexpr Type type = Type::warning;
  std::string sentence;
  bool operator==(const Warning&) const = default;
};

/// Worker to agent: what are these ranks of other nodes doing? The agent asks theirs.
struct Inquire {
  static constexpr Type type = Type::inquire;
  std::vector<std::int32_t> ranks;
  bool operator==(const Inquire&) const = default;
};
/// Agent to worker, once for each inquiry: of those whose agents have answered in time.
struct Doing {
  static constexpr Type type = Type::doing;
  struct Seen {
    std::int32_t rank = 0;
    SeenDoing doing;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> ranks;
  bool operator==(const Doing&) const = default;
};
/// The limit of an inquiry, and of its answer.
constexpr std::size_t inquired_ranks_max = 64;

/// Appends the payload of a message. Texts for people are cut at their limit; other limits are the
/// caller's to keep.
template <class Message>
void encode(Bytes& out, const Message& message);
/// Nullopt where the payload is not exactly one such message within its limits. It allocates no
/// more than the size of the payload justifies, whatever counts and lengths that claims.
template <class Message>
std::optional<Message> decode(BytesView payload);

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
