#pragma once

#include "runtime/base/socket.hpp"
#include "runtime/base/unique_fd.hpp"
#include "runtime/store/wire.hpp"

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

namespace dlaunch::store {

/// A node's one connection to whoever holds its job's store: asynchronous, on the thread of `io`.
/// A broken connection is opened again, with jittered backoff and under the same session, and
/// unanswered requests are sent again. Nothing blocks.
class Uplink {
 public:
  struct Options {
    wire::Hello hello;  ///< With a session.
    /// Where to connect, tried in order. Empty: only `connected` is used, and its end is the end.
    std::string host;
    std::uint16_t port = 0;
    unique_fd connected;  ///< A first connection that stands already; may be empty.
    std::string peer_name = "the rendezvous";
    Clock::duration backoff_min = std::chrono::milliseconds(50);
    Clock::duration backoff_max = std::chrono::seconds(5);
    /// Silent for this long although we send heartbeats: the connection is taken for dead.
    Clock::duration silence_max = std::chrono::seconds(7);
  };
  /// Called on the thread of `io`, never from within a call of Uplink. May call Uplink, and may
  /// destroy it.
  class Events {
   public:
    virtual ~Events() = default;
    /// HELLO was answered, the first time or after a reconnect; nothing pushed is lost before this.
    virtual void on_welcome(const wire::Welcome& welcome) = 0;
    /// A frame nobody asked for.
    virtual void on_push(const wire::FrameHeader& header, BytesView payload) = 0;
    /// Not connected now; tried again after a while. `error` names the step that failed: name
    /// lookup, refused, filtered, no dlaunch there, wrong job, wrong secret, version. `since` is
    /// when the connection was last good, or when the first try began.
    virtual void on_trouble(const Error& error, Clock::time_point since) = 0;
    /// Refused for good (job, secret, version): it is not tried again.
    virtual void on_refused(const Error& error) = 0;
  };
  /// The answer's header and payload, which is borrowed until it returns.
  using Answer = std::function<void(const wire::FrameHeader&, BytesView)>;

  Uplink(boost::asio::io_context& io, Options options, Events& events);
  ~Uplink();

  void start();
  /// Sends a request of the store's; `epoch` goes into its header. Returns its number.
  std::uint64_t request(wire::Type type, std::uint64_t epoch, BytesView payload, Answer answer);
  /// Forgets a request without an answer: its waiter is gone. Cancels it at the other end.
  void forget(std::uint64_t request);
  /// Pushes a message; dropped while not connected.
  void tell(wire::Type type, BytesView payload);
  bool connected() const;
  /// Our address on the live connection; where the others may reach us, too.
  Address local_address() const;
  /// Says GOODBYE, sends what is queued, and closes.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::store
