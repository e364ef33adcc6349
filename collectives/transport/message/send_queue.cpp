#include "collectives/transport/message/send_queue.hpp"

#include <algorithm>

namespace dlaunch::transport {
namespace {

constexpr std::size_t controls_max = 64;

}  // namespace

void SendQueue::post(Outgoing& message) {
  message.sent = 0;
  message.state = Outgoing::State::waiting;
  if (is_broken()) {
    message.state = Outgoing::State::failed;
    return;
  }
  messages_.push_back(&message);
}

void SendQueue::post_control(const Header& header, Bytes payload) {
  if (controls_.size() >= controls_max || is_broken()) return;
  auto control = std::make_unique<Control>();
  control->payload = std::move(payload);
  control->message.header = header;
  control->message.payload = control->payload;
  messages_.push_back(&control->message);
  controls_.push_back(std::move(control));
}

void SendQueue::withdraw(Outgoing& message) {
  const auto found = std::find(messages_.begin(), messages_.end(), &message);
  if (found == messages_.end()) return;
  if (message.sent > 0) {
    fail("a call that was given up had sent a part of its message");
  } else {
    messages_.erase(found);
  }
  message.state = Outgoing::State::failed;
}

void SendQueue::open(std::unique_ptr<SendingEnd> end) {
  end_ = std::move(end);
  state_ = State::open;
}

void SendQueue::fail(std::string reason) {
  state_ = State::broken;
  reason_ = std::move(reason);
  end_.reset();
  for (Outgoing* message : messages_) message->state = Outgoing::State::failed;
  messages_.clear();
  controls_.clear();
}

void SendQueue::pop_front() {
  Outgoing* message = messages_.front();
  messages_.pop_front();
  const bool is_control = !controls_.empty() && message == &controls_.front()->message;
  message->state = message->awaits_word() ? Outgoing::State::sent : Outgoing::State::done;
  // Controls are sent in the order in which they were queued.
  if (is_control) controls_.pop_front();
}

bool SendQueue::pump() {
  if (!end_) return false;
  bool moved = false;
  while (!messages_.empty()) {
    Outgoing& message = *messages_.front();
    moved = end_->write_some(message.header, message.payload, message.sent) || moved;
    if (message.sent < sizeof(Header) + message.payload.size()) {
      look_for_end();
      return moved || is_broken();
    }
    pop_front();
    moved = true;
  }
  return moved;
}

}  // namespace dlaunch::transport
