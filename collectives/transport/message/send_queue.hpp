#pragma once

#include "collectives/transport/message/transport.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>

namespace dlaunch::transport {

/// A message on its way out. Owned by whoever posted it; stays in place until it is no longer
/// pending or was withdrawn; its payload is borrowed as long.
struct Outgoing {
  /// sent: a synchronous message has left, and its receiver has not confirmed it.
  enum class State { waiting, sent, done, failed };

  int to = -1;  ///< World rank.
  Header header;
  BytesView payload;
  bool is_synchronous = false;  ///< It is done only once its receiver has confirmed it.
  bool is_taken = false;        ///< The receiver has; it may before all of it counts as sent.

  std::size_t sent = 0;  ///< Bytes of header and payload together.
  ObservedState<State> state = State::waiting;

  bool pending() const {
    const State now = state;
    return now == State::waiting || now == State::sent;
  }
  /// Whether a word from its receiver is still to come.
  bool awaits_word() const { return is_synchronous && !is_taken; }
};

/// The messages to one rank, sent in order by the end that was chosen at the first message; never
/// blocks.
class SendQueue {
 public:
  explicit SendQueue(int to) : to_(to) {}

  int to() const { return to_; }
  /// Whether nothing was sent yet and no way was looked for.
  bool is_idle() const { return state_ == State::idle; }
  /// Whether no way is known yet.
  bool is_undecided() const { return state_ == State::undecided; }
  bool is_broken() const { return state_ == State::broken; }
  bool has_work() const { return !messages_.empty(); }
  /// Whether there are messages of calls, not only internal ones.
  bool has_messages() const { return messages_.size() > controls_.size(); }
  /// Why it is broken: "connection refused".
  const std::string& reason() const { return reason_; }

  void post(Outgoing& message);
  /// Queues an internal message, for which nobody waits; drops it if too many are queued.
  void post_control(const Header& header, Bytes payload);
  /// Withdraws a message. If a part of it was sent this breaks the queue, since the rest can never
  /// follow.
  void withdraw(Outgoing& message);
  /// Sends a whole message without posting, if it can leave at once; else nothing of it.
  bool send_now(const Header& header, BytesView payload) {
    return end_ && messages_.empty() && end_->write(header, payload);
  }

  /// The bytes of the message under way that the receiver has still to copy from here.
  std::size_t lent_bytes() const noexcept { return end_ ? end_->lent_bytes() : 0; }

  void wait_for_way() { state_ = State::undecided; }
  void open(std::unique_ptr<SendingEnd> end);
  /// Writes as much as possible. Returns whether anything moved. Drops an end that has ended.
  bool pump();
  /// Breaks the queue if its end says why.
  void look_for_end() {
    const char* const why = end_ ? end_->end() : nullptr;
    if (why != nullptr) [[unlikely]]
      fail(why);
  }
  void fail(std::string reason);

 private:
  enum class State { idle, undecided, open, broken };
  struct Control {
    Outgoing message;
    Bytes payload;
  };

  void pop_front();

  const int to_;
  State state_ = State::idle;
  std::unique_ptr<SendingEnd> end_;
  std::deque<Outgoing*> messages_;
  std::deque<std::unique_ptr<Control>> controls_;
  std::string reason_;
};

}  // namespace dlaunch::transport
