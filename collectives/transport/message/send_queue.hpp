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
  /// sent: what is synchronous has left, and its receiver has not told that it has it.
  enum class State { waiting, sent, done, failed };

  int to = -1;  ///< World rank.
  Header header;
  BytesView payload;
  /// It is done only once its receiver has told that it has it; false from then on.
  bool is_synchronous = false;

  std::size_t sent = 0;  ///< Bytes of header and payload together.
  ObservedState<State> state = State::waiting;

  bool pending() const {
    const State now = state;
    return now == State::waiting || now == State::sent;
  }
};

/// What is sent to one rank, in order, by the end that was chosen when it was first needed; without
/// ever blocking.
class SendQueue {
 public:
  explicit SendQueue(int to) : to_(to) {}

  int to() const { return to_; }
  /// Nothing was sent yet, and no way was looked for.
  bool is_idle() const { return state_ == State::idle; }
  /// No way is known yet.
  bool is_undecided() const { return state_ == State::undecided; }
  bool is_broken() const { return state_ == State::broken; }
  bool has_work() const { return !messages_.empty(); }
  /// Somebody's, not only our own.
  bool has_messages() const { return messages_.size() > controls_.size(); }
  /// Why it is broken: "connection refused".
  const std::string& reason() const { return reason_; }

  void post(Outgoing& message);
  /// A message of our own that nobody waits for. Dropped when too many are queued.
  void post_control(const Header& header, Bytes payload);
  /// A message of which a part was sent breaks the queue: the rest can never follow.
  void withdraw(Outgoing& message);
  /// A whole message that nobody needs to post, if it can leave at once; else nothing of it.
  bool send_now(const Header& header, BytesView payload) {
    return end_ && messages_.empty() && end_->write(header, payload);
  }

  void wait_for_way() { state_ = State::undecided; }
  void open(std::unique_ptr<SendingEnd> end);
  /// Writes what can be written. Returns whether anything moved. Ends an end that says so.
  bool pump();
  /// Breaks the queue if its end says why.
  void look_for_end();
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
