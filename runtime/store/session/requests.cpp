#include "runtime/store/protocol/operations.hpp"
#include "runtime/store/session/client_session.hpp"

#include <utility>

/// The requests of a ClientSession: sending, holding back, and sending again.
namespace dlaunch::store {
namespace {

/// How many of the unanswered changes that a server remembers may be pops. Pops may wait for long,
/// and must leave room for the pushes that would end them.
constexpr std::size_t pops_max = wire::unanswered_changes_max / 2;
constexpr std::size_t changes_max = wire::unanswered_changes_max - pops_max;

bool can_be_cancelled(wire::Type type) { return wire::Requests::has(type, wire::waits); }

/// The request with the time that it has left.
Bytes with_timeout(wire::Type type, BytesView payload, wire::Timeout left) {
  Bytes changed;
  wire::decode_request(type, payload, [&](auto message) {
    if constexpr (requires { message.timeout; }) {
      message.timeout = left;
      wire::encode(changed, message);
    }
  });
  return changed;
}

}  // namespace

std::uint64_t ClientSession::request(wire::Type type, std::uint64_t epoch, BytesView payload,
                                     Answer answer, Clock::time_point now, bool stands) {
  const std::uint64_t number = next_request_++;
  Pending& pending = unanswered_[number];
  pending.type = type;
  pending.answer = std::move(answer);
  pending.stands = stands;
  pending.asked = now;
  wire::encode_frame(pending.frame, {0, type, 0, number, epoch}, payload);
  wire::decode_request(type, can_be_cancelled(type) ? payload : BytesView(), [&](const auto& m) {
    if constexpr (requires { m.timeout; }) pending.deadline = m.timeout.deadline(now);
  });
  if (must_wait(type)) {
    pending.held = true;
    (type == wire::Pop::type ? held_pops_ : held_).push_back(number);
  } else {
    go(pending, now);
  }
  return number;
}

void ClientSession::forget(std::uint64_t number, Clock::time_point now) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return;
  Pending& pending = found->second;
  if (!can_be_cancelled(pending.type) && wire::is_change(pending.type)) {
    pending.answer = nullptr;
    return;
  }
  if (!pending.held) {
    if (open() && at_.resumed && can_be_cancelled(pending.type)) {
      queue({0, wire::Cancel::type, 0, 0, 0}, wire::payload_of(wire::Cancel{number}));
    }
    count(pending.type, -1);
  }
  unanswered_.erase(found);
  release_held(now);
}

bool ClientSession::must_wait(wire::Type type) const {
  if (type == wire::Pop::type) return pops_ >= pops_max;
  return !held_.empty() || (wire::is_change(type) && changes_ >= changes_max);
}

void ClientSession::count(wire::Type type, int by) {
  if (!wire::is_change(type)) return;
  (type == wire::Pop::type ? pops_ : changes_) += static_cast<std::size_t>(by);
}

void ClientSession::go(Pending& pending, Clock::time_point now) {
  pending.held = false;
  count(pending.type, 1);
  if (open() && at_.resumed) send(pending, now);
}

void ClientSession::send(Pending& pending, Clock::time_point now) {
  if (pending.deadline != Clock::time_point::max() && now != pending.asked) {
    // The time that is left has changed since it was asked.
    const Bytes payload =
        with_timeout(pending.type, BytesView(pending.frame).subspan(wire::header_bytes),
                     wire::Timeout::until(pending.deadline, now));
    const auto header = wire::decode_header(pending.frame);
    pending.frame.clear();
    wire::encode_frame(pending.frame, header, payload);
  }
  at_.unsent.insert(at_.unsent.end(), pending.frame.begin(), pending.frame.end());
  check_unsent();
}

void ClientSession::resume(Clock::time_point now) {
  if (!open()) return;
  at_.resumed = true;
  // Unanswered requests have to be sent, however many bytes they are; only further ones are
  // limited.
  for (const auto& [number, pending] : unanswered_) {
    if (!pending.held) at_.replayed += pending.frame.size();
  }
  for (auto& [number, pending] : unanswered_) {
    if (!pending.held && open()) send(pending, now);
  }
}

void ClientSession::release_held(Clock::time_point now) {
  const auto release = [&](std::deque<std::uint64_t>& from, auto has_room) {
    while (!from.empty()) {
      const auto next = unanswered_.find(from.front());
      if (next != unanswered_.end()) {
        if (!has_room(next->second.type)) return;
        go(next->second, now);
      }
      from.pop_front();
    }
  };
  release(held_, [&](wire::Type type) { return !wire::is_change(type) || changes_ < changes_max; });
  release(held_pops_, [&](wire::Type) { return pops_ < pops_max; });
}

}  // namespace dlaunch::store
