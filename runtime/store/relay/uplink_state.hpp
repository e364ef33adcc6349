#pragma once

#include "runtime/store/protocol/frame_reader.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <deque>
#include <map>
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
/// connection, uplink_serve.cpp reads and writes it, uplink.cpp keeps the requests.
namespace dlaunch::store {
namespace asio = boost::asio;

/// Getting a connection is a coroutine, one line after the other; serving it is callbacks, each of
/// which asks for the next. Handlers hold the state, so it outlives an Uplink that is destroyed in
/// a callback; `closed` is then true.
struct Uplink::State : std::enable_shared_from_this<Uplink::State> {
  State(asio::io_context& context, Options given, Events& listener);

  struct Pending {
    wire::Type type{};
    Bytes frame;    ///< As it was first sent; sent again after a reconnect.
    Answer answer;  ///< Empty: nobody wants it, but it is to be carried out.
    /// The offset of the request's timeout in the frame, and when that ends: it shrinks when the
    /// request is sent again.
    std::size_t timeout_at = 0;
    Clock::time_point deadline;
    bool held = false;  ///< Not sent: too many changes are unanswered.
  };

  // ---- Getting a connection ----

  static asio::awaitable<void> run(std::shared_ptr<State> self);
  /// Looks up, connects and greets. Throws Error with the step that failed.
  asio::awaitable<void> connect();
  asio::awaitable<std::vector<Address>> look_up();
  asio::awaitable<void> connect_to(Address address);
  asio::awaitable<void> secure();
  asio::awaitable<wire::Welcome> greet();
  std::optional<std::uint32_t> preface_of(const std::string& what);
  wire::Welcome answer_to_hello(const FrameReader::Frame& frame, const std::string& what);
  asio::awaitable<void> pause();
  asio::awaitable<bool> await_socket(asio::posix::stream_descriptor::wait_type what,
                                     Clock::time_point until);
  void adopt(unique_fd connected);
  void report(const Error& error);
  struct Step {
    Clock::time_point until;
    std::string text;  ///< How long that is.
  };
  Step next_step() const;
  std::string peer() const;
  std::string joining() const { return "joining " + peer(); }

  // ---- Serving it ----

  void welcomed(const wire::Welcome& welcome);
  asio::awaitable<void> watch_silence();
  void await_readable();
  void on_readable();
  void take_frames();
  void take_answer(const FrameReader::Frame& frame);
  void flush_soon();
  void flush();
  enum class Written { all, blocked, broken };
  Written write_some();
  bool seal_some();
  /// The connection is no good any more.
  void lose(const Error& error);
  void disconnect();
  /// Everything is over, at once.
  void end();
  static asio::awaitable<void> say_goodbye(std::shared_ptr<State> self);

  // ---- Requests ----

  /// Whether it would be one change too many, or overtake one.
  bool must_wait(wire::Type type) const;
  void count(wire::Type type, int by);
  void begin(Pending& pending);
  void send(Pending& pending);
  void send_unanswered();
  void release_held();
  void ping();

  asio::io_context& io;
  Options options;
  Events* events;
  asio::ip::tcp::resolver resolver;
  asio::posix::stream_descriptor socket;
  asio::steady_timer timer;  ///< The coroutine's: a step's deadline, the pause, the silence.
  FrameReader reader;
  std::minstd_rand random;

  bool closed = false;
  bool final = false;  ///< The last failure will happen again.
  bool connected = false;
  bool replaying = false;        ///< on_welcome is under way: what is unanswered is sent after it.
  std::uint64_t generation = 0;  ///< Counts connections: handlers of an older one do nothing.
  std::optional<std::uint64_t> memory;  ///< The number in the last WELCOME.
  std::function<void(bool)> reconnected;
  std::optional<Error> loss;
  std::string last_trouble;
  Clock::duration backoff{};
  Clock::time_point first_until = Clock::time_point::max();  ///< By Options::first_max.
  Clock::time_point good;   ///< When the connection was last good, or the first try began.
  Clock::time_point heard;  ///< When something last arrived.
  bool pinged = false;

  std::unique_ptr<TlsChannel> tls;  ///< This connection's; null if there is no key.
  Bytes sealed;                     ///< Ciphertext on its way; of `unsent` as far as `sent`.
  std::size_t sealed_sent = 0;
  Bytes unsent;
  std::size_t sent = 0;      ///< How much of it.
  std::size_t replayed = 0;  ///< Bytes that a reconnect had to send again.
  bool flush_posted = false, writable_awaited = false;

  std::uint64_t next_request = 1;
  std::map<std::uint64_t, Pending> unanswered;  ///< In the order of sending.
  std::deque<std::uint64_t> held, held_pops;
  std::size_t changes = 0, pops = 0;  ///< In flight.
};

}  // namespace dlaunch::store
