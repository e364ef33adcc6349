#pragma once

#include "collectives/transport/message/inbox.hpp"
#include "collectives/transport/message/message.hpp"
#include "collectives/transport/shm/ring_channel.hpp"
#include "collectives/transport/tcp/proof.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::transport {

/// A message on its way out. Owned by whoever posted it; stays in place until it is no longer
/// pending or was withdrawn; its payload is borrowed as long.
struct Outgoing {
  enum class State { waiting, done, failed };

  int to = -1;  ///< World rank.
  Header header;
  BytesView payload;

  std::size_t sent = 0;  ///< Bytes of header and payload together.
  State state = State::waiting;

  bool pending() const { return state == State::waiting; }
};

/// The sending end of a channel: opens when first needed, over a ring or a connection, then writes
/// what is queued, in order, without ever blocking.
class OutChannel {
 public:
  enum class State { idle, looking_up, connecting, proving, open, broken };

  State state() const { return state_; }
  bool has_work() const { return !queue_.empty(); }
  /// There is something to write, and it is our turn.
  bool wants_to_write() const { return has_work() && state_ != State::proving; }
  int fd() const { return fd_.get(); }
  /// Why it is broken: "connection refused".
  const std::string& reason() const { return reason_; }

  void post(Outgoing& message);
  /// A message of our own that nobody waits for. Dropped when too many are queued.
  void post_control(const Header& header, Bytes payload);
  /// A message of which a part was sent breaks the channel: the rest can never follow.
  void withdraw(Outgoing& message);

  /// The address is not known yet; connect when it is.
  void wait_for_address() { state_ = State::looking_up; }
  /// The sockets are never blocking; TCP_NODELAY, so that small messages leave at once. With a
  /// key, which is borrowed, nothing is sent before `rank` has proved to know it, too.
  void connect(const Address& to, const Hello& hello, int rank, const Key* key);
  /// To a rank that shares a segment.
  void open(std::unique_ptr<RingWriter> ring);
  bool is_ring() const { return ring_ != nullptr; }
  /// A whole message that nobody needs to post, if it can leave at once; else nothing of it.
  bool send_now(const Header& header, BytesView payload) {
    return ring_ && queue_.empty() && ring_->write(header, payload);
  }
  /// The socket is writable, or was found broken. Returns whether anything moved.
  bool pump();
  /// The socket is readable or hung up, or the ring may have been left: takes in the receiver's
  /// proof if that is what is awaited, else breaks the channel if its receiver has closed it.
  void look_for_end();
  void fail(std::string reason);

 private:
  struct Control {
    Outgoing message;
    Bytes payload;
  };

  /// A connection that waits for its receiver's proof.
  struct Proving {
    const Key* key = nullptr;
    Meeting meeting;
    std::array<std::byte, challenge_bytes> challenge{};
    std::size_t got = 0;
  };

  bool finish_connecting();
  void read_proof();
  void connect_again();
  std::string unproven() const;
  bool write_hello();
  void write_whole(Outgoing& message);
  bool write_front();
  bool write_front_to_ring();
  void pop_front();

  State state_ = State::idle;
  unique_fd fd_;
  std::unique_ptr<RingWriter> ring_;  ///< In place of a socket.
  Bytes hello_;                       ///< The part of the Hello still to be sent.
  std::optional<Proving> proving_;
  int attempts_ = 0;  ///< Connections whose proof was not taken.
  std::deque<Outgoing*> queue_;
  std::deque<std::unique_ptr<Control>> controls_;
  std::string reason_;
};

/// The receiving end of a connection whose Hello was accepted.
class InChannel {
 public:
  InChannel(unique_fd fd, int from) : fd_(std::move(fd)), from_(from) {}

  int fd() const { return fd_.get(); }
  /// The sender closed it, or sent what cannot be; everything before that was taken in.
  bool ended() const { return ended_; }
  const std::string& reason() const { return reason_; }

  /// Reads and hands on what there is, without blocking. Returns whether anything moved.
  bool pump(Inbox& inbox, const OnControl& on_control);
  /// A payload of which at least this much is missing is read straight to where it belongs.
  static constexpr std::size_t direct_bytes_min = 16u << 10;
  /// Takes the next message if it is the one that is wanted, and is there as a whole; nobody else
  /// must be waiting for it. Returns whether it did. For less than `direct_bytes_min`.
  bool take(Receive& receive);
  /// When last used, something was left that no descriptor tells of, because the inbox held the
  /// source or nobody has asked for it: pump again.
  bool held() const { return held_; }

 private:
  bool feed(Inbox& inbox, const OnControl& on_control);
  bool feed_control(const OnControl& on_control);
  bool read_into_buffer(std::size_t bytes_max, std::size_t& got);
  void spare_acknowledgements() noexcept;
  bool read_some(std::span<std::byte> into, std::size_t& got);
  bool is_held_up(Inbox& inbox);

  unique_fd fd_;
  int from_;
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;
  unsigned reads_ = 0;  ///< Into the buffer.
  Header control_;
  bool in_control_ = false;
  bool closed_ = false;  ///< The socket has no more; what it gave before may still be here.
  bool ended_ = false;
  bool held_ = false;
  std::string reason_;
};

}  // namespace dlaunch::transport
