#pragma once

#include "rendezvous/state/etcd/requests.hpp"
#include "rendezvous/state/etcd/servers.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <dlaunch/error.hpp>

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::rendezvous::etcd {

/// Asks etcd by its JSON gateway, one request at a time, over one connection that stays open. If a
/// member does not answer, the next one is asked. Blocks the calling thread. One thread.
class Gateway {
 public:
  explicit Gateway(std::vector<Servers::Server> servers) : servers_(std::move(servers)) {}

  /// POSTs to a path below /v3, such as "/kv/range". A request may reach several members, or one of
  /// them late, so it must be harmless to repeat. Throws Failure.
  Json ask(std::string_view path, const Json& body, Clock::time_point deadline);
  /// The member that is asked now: "10.0.0.1:2379". Any thread, at any time.
  std::string member() const;

 private:
  struct Reply {
    unsigned status = 0;
    std::string body;
    bool keeps = false;  ///< The connection may be used again.
  };
  Reply post(std::string_view path, const std::string& body, Clock::time_point deadline);
  void connect(Clock::time_point deadline);
  void send(std::string_view text, Clock::time_point deadline) const;
  Reply receive(Clock::time_point deadline) const;

  const std::vector<Servers::Server> servers_;
  std::atomic<std::size_t> current_ = 0;
  unique_fd socket_;
};

}  // namespace dlaunch::rendezvous::etcd
