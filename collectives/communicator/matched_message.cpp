#include "collectives/communicator/matched_message.hpp"

#include "collectives/communicator/state.hpp"

#include <utility>

namespace dlaunch {

MatchedMessage::MatchedMessage(const std::shared_ptr<Communicator::State>& owner,
                               const transport::Inbox::Apart& message)
    : owner_(owner),
      message_(message),
      what_{owner->group.rank_of(message.from), message.header.tag, message.header.dtype,
            message.header.count} {}

MatchedMessage::~MatchedMessage() {
  const auto owner = owner_.lock();
  // In a forked child the lock may be held by a thread that does not exist there.
  if (!owner || owner->is_forked()) return;
  const auto lock = owner->mesh->lock();
  owner->mesh->put_back(message_);
}

Message::Message() noexcept = default;
Message::Message(std::shared_ptr<MatchedMessage> matched) noexcept : matched_(std::move(matched)) {}
Message::Message(Message&&) noexcept = default;
Message& Message::operator=(Message&&) noexcept = default;
Message::~Message() = default;

Received Message::what() const noexcept { return matched_ ? matched_->what() : Received(); }

}  // namespace dlaunch
