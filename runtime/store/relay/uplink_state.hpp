#pragma once

#include "runtime/store/relay/uplink.hpp"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

/// The inside of Uplink, for the files that implement it and nobody else: uplink_connect.cpp gets a
/// connection, uplink_serve.cpp reads and writes it.
namespace dlaunch::store {
namespace asio = boost::asio;

/// Getting a connection is a coroutine, one line after the other; serving it is callbacks, each of
/// which asks for the next. Handlers hold the state, so it outlives an Uplink that is destroyed in
/// a callback; `closed` is then true.
struct Uplink::State : std::enable_shared_from_this<Uplink::State> {
  State(asio::io_context& context, Options given, Events& listener,
        std::uint64_t first_request = 1);

  // ---- Getting a connection ----

  static asio::awaitable<void> run(std::shared_ptr<State> self);
  /// Looks up, connects and greets. Throws Error with the step that failed.
  asio::awaitable<void> connect();
  asio::awaitable<std::vector<Address>> look_up();
  asio::awaitable<void> connect_to(Address address);
  Error connect_refusal(const Address& address, int error);
  asio::awaitable<void> greet(bool sealed);
  asio::awaitable<void> pause();
  /// Whether the last failure would happen again.
  bool final() const { return shut_out > 1 || (session.broken() && session.broken()->final); }
  /// Until the timer's time comes, or it is cancelled.
  asio::awaitable<void> await_timer();
  /// Whether the socket is ready, or closed, before `end` is reached or cancelled. The operator ||
  /// for that came with Boost 1.77.
  asio::awaitable<bool> socket_before(asio::steady_timer& end,
                                      asio::posix::stream_descriptor::wait_type what);
  asio::awaitable<bool> await_socket(asio::posix::stream_descriptor::wait_type what,
                                     Clock::time_point until);
  void adopt(unique_fd connected);
  void report(const Error& error);
  struct Step {
    Clock::time_point until;
    std::string text;  ///< How long that is.
  };
  Step next_step() const;

  // ---- Serving it ----

  void welcomed();
  asio::awaitable<void> watch_silence();
  void await_readable();
  void on_readable();
  void take_events();
  void flush_soon();
  void flush();
  /// Whether the session has given the connection up, which is then closed.
  bool lost();
  void disconnect();
  /// Ends everything at once.
  void end();
  static asio::awaitable<void> say_goodbye(std::shared_ptr<State> self);

  asio::io_context& io;
  Options options;
  Events* events;
  asio::ip::tcp::resolver resolver;
  asio::posix::stream_descriptor socket;
  asio::steady_timer timer;  ///< The coroutine's: a step's deadline, the pause, the silence.
  const std::string peer;
  ClientSession session;
  std::minstd_rand random;

  bool closed = false;
  bool serving = false;          ///< There is a connection that was welcomed.
  std::uint64_t generation = 0;  ///< Counts connections: handlers of an older one do nothing.
  std::optional<std::uint64_t> memory;  ///< The number in the last WELCOME.
  int shut_out = 0;  ///< How often in a row, before a WELCOME, the kernel kept our user out.
  std::function<void(bool)> reconnected;
  std::string last_trouble;
  Clock::duration backoff{};
  Clock::time_point first_until = Clock::time_point::max();  ///< By Options::first_max.
  Clock::time_point good;  ///< When the connection was last good, or the first try began.
  bool flush_posted = false, writable_awaited = false;
};

}  // namespace dlaunch::store
