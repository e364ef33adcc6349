#pragma once

#include "runtime/base/liveness.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/store/session/client_session.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

namespace dlaunch::store {

/// The ranks that live on a node, and the size of their world.
struct NodePlace {
  std::uint64_t epoch = 0;
  int first_rank = 0;
  int local_size = 1;
  int world_size = 1;
};

/// A node's one connection to whoever holds its job's store: asynchronous, on the thread of `io`.
/// A broken connection is opened again, with jittered backoff and under the same session, and
/// unanswered requests are sent again. Nothing blocks.
class Uplink {
 public:
  struct Options {
    wire::Hello hello;  ///< With a session.
    /// The host to connect to; its addresses are tried in order. "unix:/path" is a socket on this
    /// one. Empty: only `connected` is used, and its end is the end.
    std::string host;
    std::uint16_t port = 0;
    /// The key of hello.job: a connection to `host` goes through TLS, and the other end has to know
    /// the key, too.
    std::optional<Key> key;
    unique_fd connected;  ///< A first connection that stands already; may be empty.
    std::string peer_name = "the rendezvous";
    Clock::duration backoff_min = std::chrono::milliseconds(50);
    Clock::duration backoff_max = Liveness().retry_pause_max();
    /// The connection counts as dead if nothing came for this long, although a ping was sent after
    /// a third of it.
    Clock::duration silence_max = Liveness().silence_max();
    /// The limit of a name lookup, of connecting to one address, and of the answer to HELLO.
    Clock::duration step_max = Liveness::step_max;
    /// How long it tries to make the first connection; a step under way is cut short. Then the
    /// trouble is reported once more, on time, and the listener decides.
    Clock::duration first_max = Clock::duration::max();
  };
  /// Called on the thread of `io`, never from within a call of Uplink. May call Uplink, and may
  /// destroy it.
  class Events {
   public:
    virtual ~Events() = default;
    /// HELLO was answered, the first time or after a reconnect; nothing pushed is lost before this.
    /// Messages sent from here go out before the requests that are sent again.
    virtual void on_welcome(const wire::Welcome& welcome) = 0;
    /// A frame nobody asked for.
    virtual void on_push(const wire::FrameHeader& header, BytesView payload) = 0;
    /// There is no connection; called for each failed try, and another one follows. `error` names
    /// the step that failed: name lookup, refused, filtered, no route, closed without a word, no
    /// dlaunch there; peer_lost if a good connection has broken. `since` is when the connection was
    /// last good, or when the first try began.
    virtual void on_trouble(const Error& error, Clock::time_point since) = 0;
    /// The final end: refused (job, secret, version, a unix socket's mode), or the only connection
    /// ended (peer_lost). There is no other try, and no request is answered any more.
    virtual void on_refused(const Error& error) = 0;
  };
  /// The answer's header and payload, which is borrowed until it returns. Called once, save for a
  /// watch. Called like Events.
  using Answer = ClientSession::Answer;

  Uplink(boost::asio::io_context& io, Options options, Events& events);
  ~Uplink();

  void start();
  /// Another place to connect to, from now on.
  struct Target {
    std::string host;  ///< As in Options; `connected` counts where it is empty.
    std::uint16_t port = 0;
    unique_fd connected;
    std::string peer_name = "the rendezvous";
    Clock::duration silence_max = Clock::duration::max();
  };
  /// Leaves the connection without a word, forgets open requests, and connects to the new place
  /// under the same session, with endless tries.
  void move_to(Target target);
  /// As ClientSession's, of which this is one over Asio. Requests are kept until there is a
  /// connection.
  std::uint64_t request(wire::Type type, std::uint64_t epoch, BytesView payload, Answer answer);
  void forget(std::uint64_t request);
  /// Pushes a message; dropped while not connected.
  void tell(wire::Type type, BytesView payload);
  bool connected() const;
  /// Called after each reconnect, when unanswered requests have been sent again; `forgotten`: the
  /// other end was started anew and has lost its contents. Called like Events.
  void after_reconnect(std::function<void(bool forgotten)> call);
  struct Trouble {
    Clock::time_point since;  ///< As in Events::on_trouble.
    std::string sentence;     ///< Says what went wrong last; empty before the first try has ended.
  };
  /// Why there is no connection; nullopt while there is one.
  std::optional<Trouble> trouble() const;
  /// Our address on the live connection, at which others may reach us, too.
  Address local_address() const;
  /// Says GOODBYE, sends what is queued, and closes.
  void close();

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::store
