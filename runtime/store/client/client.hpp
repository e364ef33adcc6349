#pragma once

#include "runtime/base/notice.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace dlaunch::store {

class Link;

/// Speaks the native protocol over one connection; no thread of its own. Any thread may call; a
/// waiting caller reads for all of them (leader and followers). If `reconnect` is given, a broken
/// connection is opened again and unanswered requests are repeated under the same session. The
/// destructor says goodbye.
class Client final : public JobStore {
 public:
  struct Options {
    wire::Hello hello;
    /// The timeout of calls that take no deadline.
    Clock::duration timeout = std::chrono::seconds(60);
    std::function<unique_fd(Clock::time_point deadline)> reconnect;
    /// The key of hello.job: the connection goes through TLS, and the server has to know it, too.
    std::optional<Key> key;
    Notice notice;                        ///< Shown while the server's first word is awaited.
    std::string peer_name = "the store";  ///< For messages: "the agent", "rank 0's store at h:p".
  };
  /// Called for every frame that nobody asked for, by whichever thread reads it, even before the
  /// constructor has returned. It may use the client, and must not throw.
  using OnPush = std::function<void(const wire::FrameHeader&, BytesView, std::vector<unique_fd>)>;

  /// Sends preface and HELLO, waits for WELCOME; throws what the server refused with.
  Client(unique_fd connected, Options options, OnPush on_push, Clock::time_point deadline);

  const wire::Welcome& welcome() const;
  /// To poll beside other descriptors; when readable, call `dispatch`.
  int fd() const;
  /// Reads and dispatches what has arrived, without blocking. Throws Errc::peer_lost on EOF.
  void dispatch();
  /// Sends a message without waiting for an answer. Never throws.
  void tell(wire::Type type, BytesView payload) noexcept;

 private:
  explicit Client(Link* owned);

  Link& link_;
};

}  // namespace dlaunch::store
