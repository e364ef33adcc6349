#pragma once

#include "collectives/transport/message/message.hpp"
#include "collectives/transport/message/wait_chain.hpp"

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch::transport {

/// A question to some ranks, and their answers. Owned by the one that asks; stays in place until it
/// is withdrawn.
struct Inquiry {
  std::uint64_t communicator = 0;
  std::uint64_t sequence = 0;
  Question question = Question::doing;
  /// With Question::sent: the message in question; its root is this rank in the communicator.
  Header message = {};
  std::map<int, Answer> answers = {};
};

/// A call under way, with which inquiries are answered.
struct UnderWay {
  Doing doing;
  std::string argument = {};  ///< What Argument::text() says of it.
};
/// Borrowed until the call ends.
using Activity = std::function<UnderWay()>;

/// A call that a rank has put on its device, or waits in.
struct ToldCall {
  int from = -1;  ///< World rank.
  Fingerprint call;
};

/// The inbox of messages other than data: failures of calls, and ranks' activities. Pure: no
/// socket, no clock. Under the mesh's lock; only has_failures and has_calls need none.
class ControlInbox {
 public:
  /// Takes such a message. True for an inquiry, which is to be answered.
  bool take(int from, const Header& header, BytesView payload);
  void take_failure(FailureNotice notice);
  /// This rank's communicator has ended: nobody will ask about it any more.
  void forget(std::uint64_t communicator);
  /// Whether some rank told of a failure.
  bool has_failures() const noexcept { return has_failures_; }
  /// The reported failure of this communicator that concerns most calls; the first of several such.
  const FailureNotice* failure_of(std::uint64_t communicator) const;
  /// Reported wrong arguments of this very call.
  const FailureNotice* failure_of(std::uint64_t communicator, std::uint64_t sequence) const;
  /// The last reported wrong arguments.
  const FailureNotice* wrong_arguments(std::uint64_t communicator) const;

  /// Takes a collective or a message; drops it if too many of the communicator are kept.
  void take_call(std::uint64_t communicator, const ToldCall& call);
  /// Whether a reported call was not taken out yet.
  bool has_calls() const noexcept { return has_calls_; }
  /// Takes out the next message.
  std::optional<ToldCall> next_message(std::uint64_t communicator);
  /// Takes out the next collective of those up to that sequence number.
  std::optional<ToldCall> next_call(std::uint64_t communicator, std::uint64_t sequence);

  void begin(const Activity& activity) { activities_.push_back(&activity); }
  void end(const Activity& activity) { std::erase(activities_, &activity); }
  /// The last call under way of the communicator that is asked about; nullopt when there is none.
  std::optional<UnderWay> activity(std::uint64_t communicator) const;

  /// One call waits, and no other.
  bool is_alone() const { return activities_.size() == 1; }
  /// Whether started calls go on by themselves. Needs no lock.
  void note_started() noexcept { has_started_ = true; }
  bool has_started() const noexcept { return has_started_; }

  /// Tells a rank's waits apart.
  std::uint64_t next_wait() { return ++waits_; }
  /// Takes a chain; drops it if too many are kept, since they come again.
  void take_chain(WaitChain chain);
  std::optional<WaitChain> next_chain();

  void await(Inquiry& inquiry) { inquiries_.push_back(&inquiry); }
  void withdraw(Inquiry& inquiry) { std::erase(inquiries_, &inquiry); }
  void take_answer(int from, const Header& header, const Answer& answer);

 private:
  std::map<std::uint64_t, FailureNotice> failures_;
  /// Their communicators, in the order of the reports.
  std::deque<std::uint64_t> failed_in_order_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, FailureNotice> wrong_arguments_;
  std::deque<std::pair<std::uint64_t, std::uint64_t>> wrong_in_order_;
  std::atomic<bool> has_failures_{false};
  using ToldCalls = std::map<std::uint64_t, std::deque<ToldCall>>;
  ToldCall take(ToldCalls& calls, ToldCalls::iterator of, std::deque<ToldCall>::iterator told);

  ToldCalls calls_, messages_;
  std::atomic<bool> has_calls_{false};
  std::vector<const Activity*> activities_;
  std::atomic<bool> has_started_{false};
  std::uint64_t waits_ = 0;
  std::deque<WaitChain> chains_;
  std::vector<Inquiry*> inquiries_;
};

}  // namespace dlaunch::transport
