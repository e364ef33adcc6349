#pragma once

#include "runtime/base/secret/secret.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

/// The two ends of a TlsChannel.
namespace dlaunch::store {

/// The client's end. Throws Error where it cannot be made.
std::unique_ptr<TlsChannel> connect_tls(const std::string& job, const Key& key);

/// Gives the key of a job by name, even for an unknown job, so that a wrong secret and an unknown
/// job cannot be told apart.
using KeyOfJob = std::function<Key(std::string_view job)>;

/// The server's end of a connection whose other end proves one of several keys.
class ServerChannel : public TlsChannel {
 public:
  /// The place of the proved key among the acceptor's; meaningless before established().
  virtual std::size_t key() const noexcept = 0;
};

/// Makes the server's ends of many connections. Copies share their state, and so do their channels,
/// which may outlive them.
class ServerKeys {
 public:
  /// At least one. They are tried in this order. Throws Error where no end can be made.
  explicit ServerKeys(const std::vector<KeyOfJob>& keys);
  /// Throws std::bad_alloc.
  std::unique_ptr<ServerChannel> accept() const;

 private:
  std::shared_ptr<const std::vector<std::unique_ptr<TlsAcceptor>>> acceptors_;
};

/// After `broken`: the error to throw, where `what` names the attempted step; Errc::unauthenticated
/// if another try is of no use.
Error error_of(const TlsChannel& channel, const std::string& what);

}  // namespace dlaunch::store
