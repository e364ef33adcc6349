#pragma once

#include "runtime/base/bytes.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// The native protocol, version 1, as docs/wire.md describes it: encode and decode, no I/O. Each
/// side opens with the preface "DLCH" + u32 version; then frames, each a 24-byte header and
/// `length` bytes of payload. Little-endian.
namespace dlaunch::wire {

constexpr std::uint32_t version = 1;
constexpr std::size_t preface_bytes = 8;
constexpr std::size_t header_bytes = 24;
constexpr std::size_t frame_bytes_max = 16u << 20;
constexpr std::size_t key_bytes_max = 8u << 10;
constexpr std::size_t value_bytes_max = 8u << 20;
/// Before HELLO is accepted, nothing longer is read.
constexpr std::size_t unauthenticated_bytes_max = 1u << 10;

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
  // agent and worker
  grant = 64,
  ready,
  group,
  report,
  peer_lost,
  abort,
};

/// In FrameHeader::flags.
constexpr std::uint16_t reply = 1;  ///< Answers the request of that number.
constexpr std::uint16_t error = 2;  ///< Payload: u16 Errc, sentence.
constexpr std::uint16_t more = 4;   ///< A watch: further answers will come.

struct FrameHeader {
  std::uint32_t length = 0;  ///< Of the payload.
  Type type{};
  std::uint16_t flags = 0;
  std::uint64_t request = 0;  ///< 0: pushed, nobody asked.
  std::uint64_t epoch = 0;
};

/// First message of a client. A rank that takes part in a world is a member; a plain client (a
/// tool, an agent later) has no rank.
struct Hello {
  std::uint64_t session = 0;  ///< Random; the same after a reconnect, so retries count once.
  std::string job;            ///< Empty: whatever job lives here.
  std::uint64_t incarnation = 0;
  Bytes authentication;  ///< Empty where there is no secret.
  struct Member {
    int rank = 0;
    int world_size = 1;
    std::int64_t pid = 0;
    std::string hostname;
    bool operator==(const Member&) const = default;
  };
  std::optional<Member> member;
};
struct Welcome {
  std::string job;
  std::uint64_t epoch = 0;
};
/// Agent to worker, with the descriptors by SCM_RIGHTS in this order: data-plane listener.
struct Grant {
  bool listener = false;  ///< A listening TCP socket for this worker's mesh comes along.
  std::uint32_t report_grace_ms = 0;
};
/// Worker to agent: a call failed. Ends the failure grace for this worker.
struct Report {
  Errc code{};
  std::int32_t peer = -1;  ///< The rank it blames, -1 unknown.
  std::string sentence;
};
/// Agent (or the rank-0 host) to everyone: a rank is gone.
struct PeerLost {
  std::int32_t rank = -1;
  std::string host;
  std::string cause;  ///< "killed by SIGKILL", "exited with 3", "exited 0 before the others".
};
struct Abort {
  Errc code{};
  std::string sentence;
};

}  // namespace dlaunch::wire
