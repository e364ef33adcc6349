#pragma once

#include "runtime/store/protocol/wire.hpp"

#include <cstdint>
#include <string>
#include <variant>

namespace dlaunch::store {

/// One native connection, for as long as it lives; never reused.
using ConnectionId = std::uint64_t;

/// A native key-value namespace of a server's; never reused.
using SpaceId = std::uint64_t;
/// No namespace: store requests of a connection that sits here are refused.
constexpr SpaceId no_space = 0;
/// The one that is there from the start and never dropped: where a welcomed connection sits unless
/// the host seats it elsewhere. Its epoch is that of each connection's WELCOME.
constexpr SpaceId first_space = 1;

/// The protocols of a listening socket; the first byte of a connection decides between them.
struct Protocols {
  bool native = true;
  bool c10d = false;
};

/// The host of a server: decides who may come in, and hears of comings and goings. Called on the
/// thread that runs the server, from within its loop; it may call the server, but must not destroy
/// or stop it.
class Host {
 public:
  virtual ~Host() = default;

  struct Refusal {
    Errc code = Errc::refused;
    std::string sentence;
  };
  /// A HELLO came; nothing else of that connection is served before it is welcomed. A repeated
  /// session is a reconnect: the connection it had before ends, as after a goodbye, once the new
  /// one is welcomed. Server::seat, called from here, takes effect with the WELCOME.
  virtual std::variant<wire::Welcome, Refusal> admit(ConnectionId who,
                                                     const wire::Hello& hello) = 0;
  /// A client that speaks another version of the protocol was told so, and turned away.
  virtual void on_other_version(ConnectionId who, std::uint32_t theirs) = 0;
  /// A message that is not the store's: a worker's report, an agent's join.
  virtual void on_message(ConnectionId who, const wire::FrameHeader& header, BytesView payload) = 0;
  /// A welcomed connection is gone; `goodbye` tells whether it said so before. Not called for those
  /// that Server::stop ends.
  virtual void on_closed(ConnectionId who, bool goodbye) = 0;
  /// It is the turn of a job that has work of its own, by Server::go_on_in_turns: does a little of
  /// it. Returns whether some is left.
  virtual bool on_turn(const std::string& /*job*/) { return false; }
};

/// "a program at h:p that speaks version 1 of the protocol was sent away: ...".
std::string other_version_text(const std::string& peer, std::uint32_t theirs);

}  // namespace dlaunch::store
