#pragma once

#include "runtime/base/os/home_process.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/core/session.hpp"
#include "runtime/store/native/host.hpp"
#include "runtime/store/server/late_message.hpp"
#include "runtime/store/server/turns.hpp"
#include "runtime/store/tls/tls.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace dlaunch::store {

struct ServerSecret;

/// The writing half of a connected, non-blocking socket: a bounded queue of bytes, of blocks shared
/// with other connections, and of descriptors that travel with their frame. It decides nothing; the
/// server polls, reads and closes.
class Connection final : public Outbox {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    /// Called when there is something to send, once until the next flush. Takes no memory.
    virtual void on_dirty(Connection& connection) noexcept = 0;
    /// Spare large buffers, shared by all connections, most of which are idle.
    virtual std::vector<Bytes>& spare_buffers() = 0;
  };
  /// The queued bytes from which a session is asked to pause.
  static constexpr std::size_t congested_bytes = 1u << 20;
  /// Fewer bytes than this are not counted at once, and are no reason to end a connection.
  static constexpr std::size_t little_bytes = 64u << 10;
  /// Beyond this, not counting the block that is being sent, a peer that does not read is dropped.
  static constexpr std::size_t queued_bytes_max = 8u << 20;
  /// The most that is held until the next flush, whatever a watch produces: more is lost, and the
  /// peer is dropped.
  static constexpr std::size_t held_bytes_max = 512u << 20;

  Connection(ConnectionId number, unique_fd connected, Owner& owner)
      : id(number), socket(std::move(connected)), owner_(owner) {}

  Bytes& buffer() override;
  Bytes& ahead() override;
  void share(std::shared_ptr<const Bytes> block) override;
  void close() override;
  bool congested() const override {
    return failed_ || queued_ + tail_bytes() + ahead_.size() > congested_bytes ||
           Clock::now() >= turn_end_;
  }
  void fail() noexcept override {
    failed_ = true;
    dirty();  // The next flush ends it, though nothing may have been appended.
  }
  bool failed() const { return failed_; }
  /// The time from which its session is asked to pause.
  void begin_turn(Clock::time_point end) { turn_end_ = end; }
  /// Whether the turn is over.
  bool end_turn() { return Clock::now() >= std::exchange(turn_end_, Clock::time_point::max()); }
  /// A message that write_late() writes; what is not said late after it does so first.
  void say_late(std::shared_ptr<const LateMessage> message);
  void write_late();
  bool has_late() const { return !late_.empty(); }
  /// A frame of its own, with descriptors.
  void send_with(Bytes frame, std::vector<unique_fd> descriptors);

  /// Holds the bytes queued so far until the change of this number is durable; those up to
  /// `durable` are, which does not shrink, save to 0: nothing may leave then. Bytes leave in order,
  /// whichever changes they wait for.
  void hold(std::uint64_t change, std::uint64_t durable);
  /// held: everything is sent except bytes that wait for a change.
  enum class Flushed { all, held, blocked, broken };
  /// Sends what the socket takes.
  Flushed flush();
  /// Forgets what is queued: the peer takes nothing more.
  void discard() noexcept;
  /// From now on everything goes through TLS.
  void secure(std::unique_ptr<ServerChannel> channel) { tls_ = std::move(channel); }
  bool secured() const { return tls_ != nullptr; }
  const ServerChannel& tls() const { return *tls_; }
  /// Takes in ciphertext, appends what it says to `plain`, and queues what TLS itself answers.
  TlsChannel::Fed unseal(BytesView in, Bytes& plain);
  /// More is queued than a peer may leave unread.
  bool overfull(std::size_t bytes_max = queued_bytes_max) const;
  bool overrun() const { return overrun_; }
  /// Has the memory budget count the bytes that it holds. False once these are many, have grown and
  /// have no room: further bytes are lost, and the connection has to end.
  bool count_held();
  bool greedy() const { return greedy_; }
  /// The bytes that it takes in memory; a block that others share counts as nothing.
  std::size_t held_bytes() const;
  bool closing() const { return closing_; }

  const ConnectionId id;
  const home_fd socket;

  // The server's notes on this connection.
  Protocols protocols;
  std::unique_ptr<Session> session;
  bool ended = false;       ///< To be destroyed at the end of the batch.
  bool pending = false;     ///< Not welcomed yet, with a deadline.
  bool lingers = false;     ///< Closed by us; the peer may still read what was sent.
  bool deaf = false;        ///< It takes nothing more; its earlier bytes are still read.
  bool silent = false;      ///< Has been silent on a port that has to accept that.
  bool paused = false;      ///< Its session may hold requests that it has not taken up.
  bool held = false;        ///< Is among those that wait for a change to be durable.
  bool due = false;         ///< Waits for its turn.
  bool unfinished = false;  ///< Its turn was over; it is not read before its next one.
  /// While it is pending: when it began to wait for its turn, and how long it has waited for turns
  /// since its deadline was set.
  Clock::time_point due_since;
  Clock::duration unread{};
  bool c10d = false;
  bool free = false;                          ///< What it is told waits for no change.
  MemoryCharge charge;                        ///< What the memory budget counts of it.
  std::shared_ptr<const ServerSecret> asked;  ///< With TLS: the secrets that it is asked for.
  std::uint64_t proved = 0;  ///< The number of the key that it has proved; 0: of none.
  /// Why it is refused unless it proves a secret; empty: it is let in.
  std::string unwelcome;
  std::string peer;          ///< The address that counts it among its connections; empty: none.
  Clock::time_point heard;   ///< When anything was last read.
  std::uint32_t wanted = 0;  ///< The events that epoll watches for.
  std::uint32_t events = 0;  ///< Those that have come, for its turn.
  std::shared_ptr<Turns::Job> job;  ///< The one whose changes it makes, and hears of.
  bool stranger = false;            ///< It has its turns with those that belong to no job.
  std::uint64_t late_change = 0;    ///< The last change of which a late message may tell.

 private:
  struct Chunk {
    Bytes own;
    std::shared_ptr<const Bytes> shared;
    std::vector<unique_fd> descriptors;
    BytesView bytes() const { return shared ? BytesView(*shared) : BytesView(own); }
  };
  void dirty() noexcept;
  /// The last chunk grows behind our back; the others' sizes are in queued_.
  std::size_t tail_bytes() const { return chunks_.empty() ? 0 : chunks_.back().bytes().size(); }
  Chunk& begin_chunk();
  std::size_t left_bytes() const { return queued_ + tail_bytes() - sent_; }
  /// The number of remaining bytes that may go out.
  std::size_t sendable() const;
  Flushed flush_sealed();
  bool may_send_ahead() const;
  Flushed flush_ahead();
  Flushed flushed() const {
    return holds_.empty() && ahead_.empty() ? Flushed::all : Flushed::held;
  }
  bool seal_some();
  ssize_t send_one();
  ssize_t send_many(std::size_t& total);
  void sent(std::size_t bytes);
  void recycle(Bytes& buffer);

  Owner& owner_;
  std::deque<Chunk> chunks_;
  std::size_t queued_ = 0;  ///< Bytes of all chunks but the last.
  std::size_t sent_ = 0;    ///< Bytes of the first chunk that are sent.
  /// Bytes up to `end` that wait for a change. Places are counted in bytes from the connection's
  /// beginning.
  struct Hold {
    std::uint64_t change = 0;
    std::uint64_t end = 0;
  };
  std::deque<Hold> holds_;
  /// To be written behind all that is queued.
  std::vector<std::shared_ptr<const LateMessage>> late_;
  Bytes ahead_;  ///< Frames that pass those that wait; ahead_sent_ bytes are sent.
  std::size_t ahead_sent_ = 0;
  bool mute_ = false;           ///< Nothing may leave.
  std::uint64_t gone_ = 0;      ///< The place of the first byte that is left.
  std::uint64_t released_ = 0;  ///< With holds_: the place of the first byte that waits.
  std::unique_ptr<ServerChannel> tls_;
  Bytes sealed_;  ///< Ciphertext, of which sealed_sent_ bytes are sent.
  std::size_t sealed_sent_ = 0;
  bool dirty_ = false;
  bool closing_ = false;
  bool overrun_ = false;  ///< Beyond held_bytes_max.
  bool greedy_ = false;   ///< The last answer of count_held(), negated.
  bool failed_ = false;
  std::size_t shared_ = 0;  ///< Bytes of the queued blocks that others share.
  Clock::time_point turn_end_ = Clock::time_point::max();
  Bytes lost_;
};

}  // namespace dlaunch::store
