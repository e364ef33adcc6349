#pragma once

#include "runtime/store/protocol/frame_reader.hpp"
#include "runtime/store/protocol/wire.hpp"
#include "runtime/store/tls/tls.hpp"

#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::store {

/// The client's side of our protocol over one connection after the other: the proof of the key, the
/// greeting, numbered requests, repetitions after a break, pings to a silent peer. Pure: bytes and
/// times come in, bytes to send and events go out; its owner has the socket. Not thread-safe.
class ClientSession {
 public:
  struct Options {
    wire::Hello hello;
    std::optional<Key> key;
    /// "joining the rendezvous at h:p", the beginning of sentences about greeting.
    std::string joining;
    std::string peer;  ///< "the rendezvous at h:p".
    /// The connection counts as dead if nothing came for this long, although a ping was sent after
    /// a third of it.
    Clock::duration silence_max = Clock::duration::max();
    /// The most queued bytes; if more are queued because the other end does not read, the
    /// connection is dropped.
    std::size_t unsent_bytes_max = std::numeric_limits<std::size_t>::max();
    std::uint64_t first_request = 1;  ///< The number of the first request.
  };
  /// The caller that waits for an answer; borrowed until it returns.
  using Answer = std::function<void(const wire::FrameHeader&, BytesView)>;
  struct Event {
    enum class Kind {
      welcome,  ///< The connection is good; `welcome` has the message. Call `resume` next.
      answer,   ///< For `answer`, which is empty if nobody waits.
      push,     ///< A frame nobody asked for.
    };
    Kind kind{};
    wire::FrameHeader header;
    BytesView payload;  ///< Valid until `room` is called again.
    std::vector<unique_fd> descriptors;
    Answer answer;
  };
  /// Why there is no connection.
  struct Break {
    Error error;
    bool final = false;  ///< Another try would end the same way.
  };

  explicit ClientSession(Options options)
      : options_(std::move(options)), next_request_(options_.first_request) {}

  // ---- The connection: after each of these, `next` until nothing comes, and `unsent` ----

  /// Begins with a new connection; with a key, `sealed` says whether it goes through TLS.
  void begin(bool sealed, Clock::time_point now);
  /// The place to read to.
  std::span<std::byte> room();
  /// Takes note that so many bytes were read, and that these descriptors came along.
  void received(std::size_t size, std::vector<unique_fd> descriptors, Clock::time_point now);
  /// The connection has ended, orderly or by an error.
  void ended(const std::string& error);
  /// The connection takes bytes again after it took none, so the other end lives: its answer may
  /// still be behind many bytes.
  void writable_again(Clock::time_point now) { at_.heard = now; }
  /// Pings a silent peer, or gives it up.
  void tick(Clock::time_point now);
  /// When `tick` is due; for ever without a connection.
  Clock::time_point due() const;

  std::optional<Event> next(Clock::time_point now);
  /// The bytes to be sent next; and the note that some of them were.
  BytesView unsent();
  void sent(std::size_t size);

  /// Whether WELCOME has come and the connection is good.
  bool open() const { return at_.stage == Stage::open; }
  const wire::Welcome& welcome() const { return welcome_; }
  /// Set from the end of a connection to the next `begin`.
  const std::optional<Break>& broken() const { return broken_; }

  // ---- Requests, whether there is a connection or not ----

  /// Asks, and returns the request's number. The timeout in the payload of a waiting request counts
  /// from now; if it is sent later, it carries the time left. Requests go out in this order. They
  /// are held back while wire::unanswered_changes_max changes are unanswered, since the server
  /// remembers no more. Pops, which may wait for long, have a share of their own and overtake. A
  /// request that `stands` is asked again after each `resume`.
  std::uint64_t request(wire::Type type, std::uint64_t epoch, BytesView payload, Answer answer,
                        Clock::time_point now, bool stands = false);
  /// The number of the next request.
  std::uint64_t next_request() const { return next_request_; }
  /// Forgets a request whose caller is gone. A wait is cancelled at the other end; a change is
  /// still carried out.
  void forget(std::uint64_t request, Clock::time_point now);
  /// Pushes a message; dropped where there is no connection.
  void tell(wire::Type type, std::uint64_t epoch, BytesView payload);
  /// To be called after `welcome`: sends unanswered requests again, behind messages that were
  /// pushed meanwhile.
  void resume(Clock::time_point now);
  /// Says goodbye; input from now on is dropped.
  void leave();
  /// Forgets everything.
  void give_up();

 private:
  enum class Stage { apart, proving, greeting, open, leaving };
  struct Connection {
    Stage stage = Stage::apart;
    bool resumed = false;
    FrameReader reader;
    bool preface = false;             ///< The other side's preface was right.
    std::unique_ptr<TlsChannel> tls;  ///< Null if the connection is not sealed.
    Bytes arriving;                   ///< Ciphertext is read to here.
    Bytes sealed;                     ///< Ciphertext on its way; it covers `unsent` up to `sent`.
    std::size_t sealed_sent = 0;
    Bytes unsent;
    std::size_t sent = 0;      ///< How much of `unsent` was encrypted or sent.
    std::size_t replayed = 0;  ///< Bytes that had to be sent again.
    Clock::time_point heard;   ///< When something last arrived.
    bool pinged = false;
    bool silent = true;  ///< Nothing has arrived yet.
    bool over = false;   ///< Nothing more comes after the bytes that have arrived.
  };
  struct Pending {
    wire::Type type{};
    Bytes frame;  ///< The frame as it was last sent.
    Answer answer;
    Clock::time_point asked;
    Clock::time_point deadline = Clock::time_point::max();  ///< End of its timeout, if it has one.
    bool held = false;    ///< Not sent: too many changes are unanswered.
    bool stands = false;  ///< Asked on each connection.
  };

  void fail(Error error, bool final = false);
  void prove(BytesView arrived);
  void greet();
  std::optional<Event> take(Clock::time_point now);
  std::optional<Event> take_welcome();
  std::optional<Event> take_answer(FrameReader::Frame frame, Clock::time_point now);
  void queue(const wire::FrameHeader& header, BytesView payload);
  void check_unsent();
  bool must_wait(wire::Type type) const;
  void count(wire::Type type, int by);
  void go(Pending& pending, Clock::time_point now);
  void send(Pending& pending, Clock::time_point now);
  void release_held(Clock::time_point now);

  const Options options_;
  wire::Welcome welcome_;
  std::optional<Break> broken_;
  Connection at_;

  std::uint64_t next_request_ = 1;
  std::map<std::uint64_t, Pending> unanswered_;  ///< In the order of asking.
  std::deque<std::uint64_t> held_, held_pops_;
  std::size_t changes_ = 0, pops_ = 0;  ///< Numbers of changes and pops in flight.
};

}  // namespace dlaunch::store
