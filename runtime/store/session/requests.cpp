#include "runtime/store/session/client_session.hpp"

#include <cstring>
#include <utility>

/// The requests of a ClientSession: which are sent, which are held back, which are sent again.
namespace dlaunch::store {
namespace {

/// So many of the unanswered changes that a server remembers may be pops: they may wait for long,
/// and must not keep the pushes out that would end them.
constexpr std::size_t pops_max = wire::unanswered_changes_max / 2;
constexpr std::size_t changes_max = wire::unanswered_changes_max - pops_max;

/// The offset of a request's timeout in the payload; nullopt: it has none.
std::optional<std::size_t> timeout_offset(wire::Type type, BytesView payload) {
  std::size_t at = 0;
  switch (type) {
    case wire::Type::wait:
    case wire::Type::wait_get:
    case wire::Type::pop:
      break;
    case wire::Type::barrier:
    case wire::Type::all_gather:
      at = sizeof(std::uint32_t) + ByteReader(payload).integer<std::uint32_t>() +
           sizeof(std::uint64_t) + sizeof(std::int32_t);
      break;
    default:
      return std::nullopt;
  }
  if (at + sizeof(std::uint64_t) > payload.size()) return std::nullopt;
  return at;
}

/// It waits, and changes nothing when its waiter goes.
bool can_be_cancelled(wire::Type type) {
  switch (type) {
    case wire::Type::wait:
    case wire::Type::wait_get:
    case wire::Type::pop:
    case wire::Type::watch:
    case wire::Type::barrier:
    case wire::Type::all_gather:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::uint64_t ClientSession::request(wire::Type type, std::uint64_t epoch, BytesView payload,
                                     Answer answer, Clock::time_point now, bool stands) {
  const std::uint64_t number = next_request_++;
  Pending& pending = unanswered_[number];
  pending.type = type;
  pending.answer = std::move(answer);
  pending.stands = stands;
  wire::encode_frame(pending.frame, {0, type, 0, number, epoch}, payload);
  if (const auto offset = timeout_offset(type, payload)) {
    pending.timeout_at = wire::header_bytes + *offset;
    wire::Timeout timeout;
    std::memcpy(&timeout.microseconds, payload.data() + *offset, sizeof timeout.microseconds);
    pending.deadline = timeout.deadline(now);
  }
  if (must_wait(type)) {
    pending.held = true;
    (type == wire::Type::pop ? held_pops_ : held_).push_back(number);
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
      Bytes payload;
      wire::encode(payload, wire::Cancel{number});
      queue({0, wire::Type::cancel, 0, 0, 0}, payload);
    }
    count(pending.type, -1);
  }
  unanswered_.erase(found);
  release_held(now);
}

bool ClientSession::must_wait(wire::Type type) const {
  if (type == wire::Type::pop) return pops_ >= pops_max;
  return !held_.empty() || (wire::is_change(type) && changes_ >= changes_max);
}

void ClientSession::count(wire::Type type, int by) {
  if (!wire::is_change(type)) return;
  (type == wire::Type::pop ? pops_ : changes_) += static_cast<std::size_t>(by);
}

void ClientSession::go(Pending& pending, Clock::time_point now) {
  pending.held = false;
  count(pending.type, 1);
  if (open() && at_.resumed) send(pending, now);
}

/// The time that is left may have changed since it was asked.
void ClientSession::send(Pending& pending, Clock::time_point now) {
  if (pending.timeout_at != 0) {
    const auto left = wire::Timeout::until(pending.deadline, now);
    std::memcpy(pending.frame.data() + pending.timeout_at, &left.microseconds,
                sizeof left.microseconds);
  }
  at_.unsent.insert(at_.unsent.end(), pending.frame.begin(), pending.frame.end());
  check_unsent();
}

void ClientSession::resume(Clock::time_point now) {
  if (!open()) return;
  at_.resumed = true;
  // However much it is, it has to be sent; what comes on top of it is limited.
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
