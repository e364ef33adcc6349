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
/// greeting, requests by number, what is repeated after a break, the ping to a silent peer. Pure:
/// bytes and times come in, bytes to send and events go out; its owner has the socket. Not
/// thread-safe.
class ClientSession {
 public:
  struct Options {
    wire::Hello hello;
    std::optional<Key> key;
    std::string joining;  ///< "joining the rendezvous at h:p": begins what is said of a greeting.
    std::string peer;     ///< "the rendezvous at h:p".
    /// Nothing came for this long, though it was asked by a ping after a third of it: the
    /// connection is taken for dead.
    Clock::duration silence_max = Clock::duration::max();
    /// A connection for which more is queued, because the other end does not read, is dropped.
    std::size_t unsent_bytes_max = std::numeric_limits<std::size_t>::max();
    std::uint64_t first_request = 1;  ///< The number of the first request.
  };
  /// The caller that waits for an answer; borrowed until it returns.
  using Answer = std::function<void(const wire::FrameHeader&, BytesView)>;
  struct Event {
    enum class Kind {
      welcome,  ///< The connection is good; `welcome` says what came. Then `resume`.
      answer,   ///< For `answer`, which may be empty: nobody wants it.
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
    bool final = false;  ///< Another try would end the same.
  };

  explicit ClientSession(Options options)
      : options_(std::move(options)), next_request_(options_.first_request) {}

  // ---- The connection: after each of these, `next` until nothing comes, and `unsent` ----

  /// There is a new connection; with a key, `sealed` says whether it goes through TLS.
  void begin(bool sealed, Clock::time_point now);
  /// The place to read to.
  std::span<std::byte> room();
  /// So much was read, and these descriptors came with it.
  void received(std::size_t size, std::vector<unique_fd> descriptors, Clock::time_point now);
  /// The connection is at an end: an orderly one, or by an error.
  void ended(const std::string& error);
  /// It has taken bytes again after it took none, so the other end lives: its answer may be behind
  /// much.
  void writable_again(Clock::time_point now) { at_.heard = now; }
  /// Asks whether a silent peer is there, or gives it up.
  void tick(Clock::time_point now);
  /// When `tick` is due; for ever without a connection.
  Clock::time_point due() const;

  std::optional<Event> next(Clock::time_point now);
  /// What is to be sent next, and that some of it was.
  BytesView unsent();
  void sent(std::size_t size);

  /// WELCOME has come, and the connection is good.
  bool open() const { return at_.stage == Stage::open; }
  const wire::Welcome& welcome() const { return welcome_; }
  /// Set from the end of a connection to the next `begin`.
  const std::optional<Break>& broken() const { return broken_; }

  // ---- Requests, whether there is a connection or not ----

  /// Its number. The timeout in the payload of one that waits counts from now: what is sent later
  /// says what is left of it. Requests go out in this order, and are held back while
  /// wire::unanswered_changes_max changes are unanswered, since the server remembers no more of
  /// them; pops, which may wait for long, have a share of their own and overtake. One that `stands`
  /// is asked again after each `resume`.
  std::uint64_t request(wire::Type type, std::uint64_t epoch, BytesView payload, Answer answer,
                        Clock::time_point now, bool stands = false);
  /// The number of the next request.
  std::uint64_t next_request() const { return next_request_; }
  /// Forgets a request without an answer: its waiter is gone. One that waits is cancelled at the
  /// other end; a change is carried out.
  void forget(std::uint64_t request, Clock::time_point now);
  /// Pushes a message; dropped where there is no connection.
  void tell(wire::Type type, std::uint64_t epoch, BytesView payload);
  /// After `welcome`: sends what is unanswered again, behind what was told meanwhile.
  void resume(Clock::time_point now);
  /// Says goodbye; what comes from now on is dropped.
  void leave();
  /// Forgets everything.
  void give_up();

 private:
  enum class Stage { apart, proving, greeting, open, leaving };
  struct Connection {
    Stage stage = Stage::apart;
    bool resumed = false;
    FrameReader reader;
    bool preface = false;             ///< The other side's was right.
    std::unique_ptr<TlsChannel> tls;  ///< Null where it is not sealed.
    Bytes arriving;                   ///< Ciphertext is read to here.
    Bytes sealed;                     ///< Ciphertext on its way; of `unsent` as far as `sent`.
    std::size_t sealed_sent = 0;
    Bytes unsent;
    std::size_t sent = 0;      ///< How much of it.
    std::size_t replayed = 0;  ///< Bytes that had to be sent again.
    Clock::time_point heard;   ///< When something last arrived.
    bool pinged = false;
    bool silent = true;  ///< Nothing has arrived yet.
    bool over = false;   ///< Behind what has arrived there comes nothing more.
  };
  struct Pending {
    wire::Type type{};
    Bytes frame;  ///< As it was last sent.
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
  std::size_t changes_ = 0, pops_ = 0;  ///< In flight.
};

}  // namespace dlaunch::store
