#pragma once

#include "runtime/store/native/host.hpp"
#include "runtime/store/protocol/wire.hpp"

namespace dlaunch::store {

/// Carries out the store requests of a server's native connections in place of its namespaces.
/// Greeting, goodbye and all other messages stay with the server and its host. Called on the
/// server's thread, from within its loop; answers by Server::answer, at once or much later.
class Backend {
 public:
  virtual ~Backend() = default;

  struct From {
    ConnectionId connection = 0;
    std::uint64_t session = 0;  ///< 0: none.
  };
  /// A change that this server has already answered for this session does not come here again.
  /// False: the payload is garbage.
  virtual bool on_request(const From& from, const wire::FrameHeader& header, BytesView payload,
                          Clock::time_point now) = 0;
  /// The connection has ended, or another has taken its session over.
  virtual void on_gone(const From& from, bool goodbye) = 0;
};

}  // namespace dlaunch::store
