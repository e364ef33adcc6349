#pragma once

#include "runtime/base/enum_table.hpp"
#include "runtime/base/text_hash.hpp"
#include "runtime/base/verdict.hpp"
#include "runtime/segment/flight.hpp"

#include <dlaunch/communicator.hpp>
#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// The bytes that travel between two ranks. A TCP connection carries one direction: the sender
/// connects and says Hello, then come messages, each a Header and `bytes` bytes of payload.
/// Little-endian, in the structs' own layout.
namespace dlaunch::transport {

constexpr std::uint32_t hello_magic = 0x534d4c44;    // "DLMS"
constexpr std::uint32_t message_magic = 0x4d4d4c44;  // "DLMM"
constexpr std::uint32_t hello_version = 3;
/// The longest payload of everything that is not data.
constexpr std::size_t control_bytes_max = 4096;

/// The first bytes on a connection; a receiver closes one whose Hello is not meant for it.
struct Hello {
  std::uint32_t magic = hello_magic;
  std::uint32_t version = hello_version;
  std::uint64_t job = 0;  ///< Hash of the job's id.
  std::uint64_t epoch = 0;
  std::uint32_t mesh = 0;    ///< Which of the meshes the ranks made from one world.
  std::int32_t rank = 0;     ///< The sender's.
  std::int32_t size = 0;     ///< The size of the sender's world.
  std::uint32_t proves = 0;  ///< 1: the job has a key, and proofs follow (proof.hpp).
};
static_assert(sizeof(Hello) == 40 && std::is_trivially_copyable_v<Hello>);

enum class Kind : std::uint8_t {
  collective = 1,  ///< Part of a collective call; matched by communicator and source, in order.
  message,         ///< Point to point; matched by communicator, source and tag, in order.
  failure,  ///< The sender's call failed: Errc u16, u16 scope, i32 the rank that met it first,
            ///< claim (docs/wire.md), sentence.
  inquiry,  ///< No payload; `argument` is the Question.
  status,   ///< The answer, with its sequence and question: an Answer.
  call,     ///< The sender has put this call on its device, or waits in it; the payload: headers of
            ///< more.
  chain,    ///< Ranks of which each waits for the next, the last for the receiver (wait_chain.hpp).
  taken,    ///< No payload; `sequence` is that of a synchronous message that the sender has
            ///< received.
};

enum class Op : std::uint8_t {
  barrier = 1,
  broadcast,
  reduce,
  all_reduce,
  all_gather,
  all_gather_v,
  gather,
  gather_v,
  scatter,
  scatter_v,
  reduce_scatter,
  reduce_scatter_v,
  all_to_all,
  all_to_all_v,
  scan,
  exscan,
  split,
  group,
  duplicate,
  revoke,
  agree,
  shrink,
  broadcast_object,
  all_gather_object,
  all_reduce_object,
  gather_object,
  scatter_object,
  send,
  recv,
  probe,
};

/// The properties of a call. A new one is an enumerator and a row.
struct OpTraits {
  Op op{};
  const char* name =
      "an unknown call";    ///< A number read off the wire may be newer than this build.
  bool is_message = false;  ///< Between two ranks; else a collective, which all ranks make.
  bool is_rooted = false;   ///< Has a root: a rank may return from it before all others have come.
  /// Collectives that are counted together: ranks that are in the same one have the same number.
  bool is_counted = true;
};
inline constexpr auto op_table = enum_table<&OpTraits::op, Op::barrier, Op::probe>({
    {.op = Op::barrier, .name = "barrier"},
    {.op = Op::broadcast, .name = "broadcast", .is_rooted = true},
    {.op = Op::reduce, .name = "reduce", .is_rooted = true},
    {.op = Op::all_reduce, .name = "all_reduce"},
    {.op = Op::all_gather, .name = "all_gather"},
    {.op = Op::all_gather_v, .name = "all_gather_v"},
    {.op = Op::gather, .name = "gather", .is_rooted = true},
    {.op = Op::gather_v, .name = "gather_v", .is_rooted = true},
    {.op = Op::scatter, .name = "scatter", .is_rooted = true},
    {.op = Op::scatter_v, .name = "scatter_v", .is_rooted = true},
    {.op = Op::reduce_scatter, .name = "reduce_scatter"},
    {.op = Op::reduce_scatter_v, .name = "reduce_scatter_v"},
    {.op = Op::all_to_all, .name = "all_to_all"},
    {.op = Op::all_to_all_v, .name = "all_to_all_v"},
    {.op = Op::scan, .name = "scan"},
    {.op = Op::exscan, .name = "exscan"},
    {.op = Op::split, .name = "split"},
    {.op = Op::group, .name = "group"},
    {.op = Op::duplicate, .name = "duplicate"},
    {.op = Op::revoke, .name = "revoke", .is_counted = false},
    {.op = Op::agree, .name = "agree", .is_counted = false},
    {.op = Op::shrink, .name = "shrink", .is_counted = false},
    {.op = Op::broadcast_object, .name = "broadcast_object", .is_rooted = true},
    {.op = Op::all_gather_object, .name = "all_gather_objects"},
    {.op = Op::all_reduce_object, .name = "all_reduce_object"},
    {.op = Op::gather_object, .name = "gather_objects", .is_rooted = true},
    {.op = Op::scatter_object, .name = "scatter_objects", .is_rooted = true},
    {.op = Op::send, .name = "send", .is_message = true},
    {.op = Op::recv, .name = "recv", .is_message = true},
    {.op = Op::probe, .name = "probe", .is_message = true},
});
constexpr OpTraits traits_of(Op op) noexcept { return op_table.of(op); }

constexpr const char* to_string(Op op) noexcept { return traits_of(op).name; }
constexpr bool is_message(Op op) noexcept { return traits_of(op).is_message; }
constexpr bool is_rooted(Op op) noexcept { return traits_of(op).is_rooted; }
constexpr bool is_counted(Op op) noexcept { return !is_message(op) && traits_of(op).is_counted; }
/// Calls that no rank can leave before all have come.
constexpr bool waits_for_all(Op op) noexcept { return !is_message(op) && !is_rooted(op); }

/// Fingerprint::count of calls in which each rank has a count of its own.
constexpr std::uint64_t counts_vary = ~std::uint64_t{0};

/// The two bits of Fingerprint::traffic that are known here: the call was made for a rank that has
/// no inputs left, in place of its own; the buffers are CUDA's.
constexpr std::uint32_t shadow_bit = 1u << 30;
constexpr std::uint32_t device_bit = 1u << 31;

/// The terms of a call on which ranks must agree. 0 stands for "has none".
struct Fingerprint {
  Op op{};
  DType dtype{};
  ReduceOp reduce{};
  std::int32_t root = -1;
  std::uint64_t sequence = 0;  ///< From 1 in each communicator; messages have none.
  std::uint64_t count = 0;
  /// A hash of further terms that must agree: counts of a v-variant, a factor, a custom operation's
  /// name.
  std::uint64_t argument = 0;
  /// What the call is for, packed by the layer above (call/core/traffic.hpp); 0: the program's own.
  std::uint32_t traffic = 0;

  /// As the flight recorder takes it.
  Flight::Call record() const noexcept {
    return {Flight::Call::pack(static_cast<std::uint8_t>(op), static_cast<std::uint8_t>(dtype),
                               static_cast<std::uint8_t>(reduce), root),
            sequence, count, argument, traffic};
  }
  static auto fields(auto& m) {
    return std::tie(m.op, m.dtype, m.reduce, m.root, m.sequence, m.count, m.argument, m.traffic);
  }
  /// Whether its buffers are CUDA's.
  bool on_device() const noexcept { return (traffic & device_bit) != 0; }
  /// The part of the traffic that ranks compare, without the shadow's bit: a shadow is meant to
  /// meet the call that it shadows.
  static std::uint32_t compared_traffic(std::uint32_t traffic) noexcept {
    return traffic & ~shadow_bit;
  }
  /// The traffic adds this to a collective's argument, by which calls are told apart quickly.
  static std::uint64_t argument_of(std::uint32_t traffic) noexcept {
    return compared_traffic(traffic) * 0x94d049bb133111ebU;
  }
  bool operator==(const Fingerprint& other) const noexcept {
    return op == other.op && dtype == other.dtype && reduce == other.reduce && root == other.root &&
           sequence == other.sequence && count == other.count && argument == other.argument &&
           compared_traffic(traffic) == compared_traffic(other.traffic);
  }
};

struct Header {
  std::uint32_t magic = message_magic;
  Kind kind{};
  Op op{};
  DType dtype{};
  ReduceOp reduce{};
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;  ///< A collective's; a message's where it is_synchronous().
  std::uint64_t count = 0;
  std::uint64_t argument = 0;
  std::int32_t root = -1;
  std::int32_t tag = 0;  ///< A message's tag; a collective's traffic.
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Header) == 56 && std::is_trivially_copyable_v<Header>);
static_assert(offsetof(Header, kind) == 4 && offsetof(Header, reduce) == 7);  // See make_header.
static_assert(offsetof(Header, root) == 40 && offsetof(Header, tag) == 44 && alignof(Header) == 8);

/// Whether its header has the call's traffic in place of a tag.
constexpr bool has_traffic(Kind kind) noexcept {
  return kind == Kind::collective || kind == Kind::call;
}
/// Eight bytes of any object.
using Word [[gnu::may_alias]] = std::uint64_t;

/// Two fields in the order in which they lie in memory.
constexpr std::uint64_t word_of(std::uint32_t first, std::uint32_t second) noexcept {
  if constexpr (std::endian::native == std::endian::little) std::swap(first, second);
  return std::uint64_t{first} << 32 | second;
}
/// It writes fields that share a word as one. The header is copied soon, in whole words, and a load
/// of what several stores have just written waits until the core has handed on all its stores,
/// those of the message before among them.
inline Header make_header(Kind kind, std::uint64_t communicator, const Fingerprint& call,
                          std::uint64_t bytes, int tag = 0) {
  const std::array<std::uint8_t, 4> what{
      static_cast<std::uint8_t>(kind), static_cast<std::uint8_t>(call.op),
      static_cast<std::uint8_t>(call.dtype), static_cast<std::uint8_t>(call.reduce)};
  if (has_traffic(kind)) tag = static_cast<std::int32_t>(call.traffic);
  Header header;
  reinterpret_cast<Word&>(header.magic) =
      word_of(message_magic, std::bit_cast<std::uint32_t>(what));
  header.communicator = communicator;
  header.sequence = call.sequence;
  header.count = call.count;
  header.argument = call.argument;
  reinterpret_cast<Word&>(header.root) =
      word_of(static_cast<std::uint32_t>(call.root), static_cast<std::uint32_t>(tag));
  header.bytes = bytes;
  return header;
}
Fingerprint fingerprint_of(const Header& header);
/// A number that is equal for calls that agree; ranks that disagree are counted by it.
std::uint64_t number_of(const Fingerprint& call) noexcept;
/// A message whose sender waits until it was received, and is told by Kind::taken.
constexpr bool is_synchronous(const Header& header) noexcept {
  return header.kind == Kind::message && header.sequence != 0;
}
/// Whether a header that came from outside can be one of ours.
bool is_plausible(const Header& header) noexcept;

/// As text_hash: the same on all ranks and in all builds.
inline std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept {
  return text_hash({static_cast<const char*>(data), bytes});
}

/// How far a failure reaches among the calls of the ranks that hear of it.
enum class Scope : std::uint16_t {
  from_here_on = 1,  ///< That call and every later one: the communicator is broken.
  this_call,         ///< That call alone: the sender gave it wrong arguments and goes on.
};

/// A rank's message about its failed call.
struct FailureNotice {
  Errc code{};
  Scope scope{};
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  std::string sentence;
  int from = -1;  ///< The world rank that said it; does not travel with it. -1: this rank.
  Claim claim = {};
  int met_by = -1;  ///< The world rank that met it first; -1: the one that says it.
};

/// The subject of an inquiry.
enum class Question : std::uint64_t {
  doing,     ///< The call that the rank is in.
  made,      ///< Its collective of that sequence: a MadeCall.
  argument,  ///< Its argument of that collective, if it is in it: an ArgumentWords.
  sent,      ///< The message of dtype, count and tag that it sent to that root: a SentFrom.
};

/// The rank knows nothing about it.
struct NothingKnown {
  bool operator==(const NothingKnown&) const = default;
};
/// The call that a rank is in.
struct Doing {
  std::uint64_t communicator = 0;
  std::string group = {};  ///< The communicator's name.
  Fingerprint call = {};
  // A message's.
  int peer = any_source;
  int tag = 0;
  // A rank of the communicator, and the same one in the world; -1: none in particular.
  int waits_for = -1;
  int waits_for_world = -1;
  bool on_stream = false;  ///< On a device: no thread waits in it.

  static auto fields(auto& m) {
    return std::tie(m.communicator, m.group, m.call, m.peer, m.tag, m.waits_for, m.waits_for_world,
                    m.on_stream);
  }
  bool operator==(const Doing&) const = default;
};
/// A collective that a rank has made.
struct MadeCall {
  Fingerprint call;
  std::string place;  ///< "train.cpp:42"; empty where it is not known.
  static auto fields(auto& m) { return std::tie(m.call, m.place); }
  bool operator==(const MadeCall&) const = default;
};
/// "counts 1, 2": what Argument::text() says.
struct ArgumentWords {
  std::string text;
  static auto fields(auto& m) { return std::tie(m.text); }
  bool operator==(const ArgumentWords&) const = default;
};
/// The places from which a rank sent such messages.
struct SentFrom {
  static constexpr std::size_t places_max = 32;
  std::vector<std::string> places;
  static auto fields(auto& m) { return std::tie(m.places); }
  bool operator==(const SentFrom&) const = default;
};
/// A rank's answer to an inquiry.
using Answer = std::variant<NothingKnown, Doing, MadeCall, ArgumentWords, SentFrom>;

Bytes encode(const FailureNotice& notice);
Bytes encode(const Answer& answer);
std::optional<FailureNotice> decode_failure(const Header& header, BytesView payload);
std::optional<Answer> decode_answer(BytesView payload);

}  // namespace dlaunch::transport
