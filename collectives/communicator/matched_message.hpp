#pragma once

#include "collectives/transport/message/inbox.hpp"

#include <dlaunch/communicator.hpp>

#include <memory>

namespace dlaunch {

/// A message that was set apart for its communicator; put back when this is destroyed, unless it
/// was received. For the thread that uses the communicator.
class MatchedMessage {
 public:
  MatchedMessage(const std::shared_ptr<Communicator::State>& owner,
                 const transport::Inbox::Apart& message);
  MatchedMessage(const MatchedMessage&) = delete;
  MatchedMessage& operator=(const MatchedMessage&) = delete;
  ~MatchedMessage();

  bool is_of(const Communicator::State& communicator) const {
    return owner_.lock().get() == &communicator;
  }
  const Received& what() const { return what_; }
  const transport::Inbox::Apart& message() const { return message_; }
  /// A receive has taken it.
  void note_taken() { owner_.reset(); }

 private:
  std::weak_ptr<Communicator::State> owner_;
  const transport::Inbox::Apart message_;
  const Received what_;
};

}  // namespace dlaunch
