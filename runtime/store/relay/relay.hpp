#pragma once

#include "runtime/store/relay/uplink.hpp"
#include "runtime/store/server/server.hpp"

#include <cstdint>
#include <memory>
#include <string_view>

#include <boost/asio/io_context.hpp>

namespace dlaunch::store {

/// Stands between a node's workers, which speak with the agent's server, and the job's store at
/// another node: forwards their requests over the agent's one connection and hands the answers
/// back. Equal requests of several workers go up once: a wait for the same keys, the renewal of
/// leases, and a round of a barrier or an all_gather of the whole world, which goes up when all
/// local ranks have come (or one's deadline passes, or one is lost). One thread: that of `io`, the
/// server's and the uplink's.
///
/// While the store is not reachable requests wait until their deadlines, and those without one for
/// 50 s. Both kinds of answers say since when, and why.
class Relay {
 public:
  /// The uplink outlives it.
  Relay(boost::asio::io_context& io, Uplink& uplink);
  ~Relay();

  /// Forgets everything of the epoch before and serves the connections of `local`, a new server
  /// that outlives the next call, or has been stopped before it.
  void begin_epoch(const NodePlace& place, Server& local);
  /// This rank will not come any more: who waits for it here in a round of the whole world fails at
  /// once with Errc::peer_lost and `why`, and so do those who come later.
  void lose_contributor(int rank, std::string_view why);
  /// The job's store will not come back: all open and later requests of this epoch fail at once
  /// with Errc::peer_lost and `why`.
  void lose_store(std::string_view why);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::store
