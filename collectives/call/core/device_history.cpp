#include "collectives/call/core/device_history.hpp"

#include <algorithm>

namespace dlaunch {

using transport::Op;

void CallHistory::record(const Fingerprint& call) {
  const std::lock_guard lock(mutex_);
  last_ = call;
  if (!call.on_device()) {
    on_host_[call.sequence % calls_max] = call;
    return;
  }
  if (on_device_.size() == calls_max) on_device_.pop_front();
  on_device_.push_back(call);
  if (untold_.collectives.size() < calls_max) untold_.collectives.push_back(call);
}

std::optional<CallHistory::Fingerprint> CallHistory::find(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const auto on_device = std::ranges::lower_bound(on_device_, sequence, {}, &Fingerprint::sequence);
  if (on_device != on_device_.end() && on_device->sequence == sequence) return *on_device;
  const auto& on_host = on_host_[sequence % calls_max];
  return on_host.sequence == sequence ? std::optional(on_host) : std::nullopt;
}

CallHistory::Fingerprint CallHistory::last() const {
  const std::lock_guard lock(mutex_);
  return last_;
}

void CallHistory::record_message(int peer, const Fingerprint& message) {
  const std::lock_guard lock(mutex_);
  if (message.op == Op::send) {
    untold_.messages.emplace_back(peer, message);
    return;
  }
  received_[peer].expected.push_back(message);
  pair(peer);
}

void CallHistory::take_message(int from, const Fingerprint& message) {
  const std::lock_guard lock(mutex_);
  received_[from].sent.push_back(message);
  pair(from);
}

void CallHistory::pair(int from) {
  Messages& messages = received_[from];
  if (messages.sent.size() > calls_max || messages.expected.size() > calls_max) {
    messages.is_known = false;
  }
  if (!messages.is_known) {
    messages.sent.clear();
    messages.expected.clear();
    return;
  }
  while (!messages.sent.empty() && !messages.expected.empty()) {
    const Fingerprint sent = messages.sent.front(), expected = messages.expected.front();
    messages.sent.pop_front();
    messages.expected.pop_front();
    const bool alike = sent.dtype == expected.dtype && sent.count == expected.count;
    if (alike || unlike_) continue;
    unlike_ = {from, sent, expected};
    has_unlike_ = true;
  }
}

std::optional<CallHistory::Unlike> CallHistory::unlike() const {
  const std::lock_guard lock(mutex_);
  return unlike_;
}

std::size_t CallHistory::untold_count() const {
  const std::lock_guard lock(mutex_);
  return untold_.collectives.size() + untold_.messages.size();
}

CallHistory::Untold CallHistory::take_untold() {
  const std::lock_guard lock(mutex_);
  return std::exchange(untold_, {});
}

}  // namespace dlaunch
