#pragma once

#include "runtime/base/unique_fd.hpp"
#include "runtime/store/host.hpp"
#include "runtime/store/key_values.hpp"
#include "runtime/store/wire.hpp"

#include <cstdint>
#include <memory>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::store {

struct Counters {
  std::uint64_t accepted = 0;
  std::uint64_t garbage = 0;    ///< Closed for a first byte, frame or length that cannot be.
  std::uint64_t slow = 0;       ///< Dropped because they did not read.
  std::uint64_t timed_out = 0;  ///< Said no HELLO in time.
  std::uint64_t silent = 0;     ///< On a c10d-capable port, connected and mute; never cut.
};

/// Serves one job's native namespace, and one c10d namespace per attempt, on one thread: that of
/// `io`. Every queue has a limit; a slow reader is dropped, by name, and harms nobody else.
class Server {
 public:
  Server(boost::asio::io_context& io, Host& host, Limits limits = {});
  ~Server();

  /// Accepts on a bound and listening socket (TCP or unix).
  void listen(unique_fd listener, Protocols protocols);
  /// Serves a connected socket that speaks the native protocol: a worker's control socket.
  /// Returns the number by which the host will hear of it.
  ConnectionId adopt(unique_fd connected);
  /// Pushes a message nobody asked for, with descriptors on a unix socket.
  void push(ConnectionId to, wire::Type type, BytesView payload, std::vector<unique_fd> fds = {});
  /// The contributor will not come any more: the native namespace's aggregates of `count` that lack
  /// it are refused with Errc::peer_lost and `why`.
  void lose_contributor(int contributor, int count, std::string_view why);
  /// Lets go of a connection: what is queued is sent, then it is closed.
  void close(ConnectionId who);
  /// Closes every c10d connection and starts an empty c10d namespace; its listeners stay.
  void renew_c10d();
  /// Closes listeners and connections.
  void stop();

  Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::store
