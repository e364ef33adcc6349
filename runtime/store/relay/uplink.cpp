#include "runtime/store/relay/uplink.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <cstring>
#include <exception>
#include <utility>

#include <boost/asio/co_spawn.hpp>

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

void rethrow(const std::exception_ptr& error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

Uplink::State::State(asio::io_context& context, Options given, Events& listener)
    : io(context),
      options(std::move(given)),
      events(&listener),
      resolver(context),
      socket(context),
      timer(context),
      random(static_cast<std::minstd_rand::result_type>(options.hello.session)),
      backoff(options.backoff_min),
      good(Clock::now()) {}

Uplink::Uplink(boost::asio::io_context& io, Options options, Events& events)
    : state_(std::make_shared<State>(io, std::move(options), events)) {}

Uplink::~Uplink() {
  if (!state_->closed) state_->end();
}

void Uplink::start() { asio::co_spawn(state_->io, State::run(state_), rethrow); }

bool Uplink::connected() const { return state_->connected; }

void Uplink::after_reconnect(std::function<void(bool)> call) {
  state_->reconnected = std::move(call);
}

std::optional<Uplink::Trouble> Uplink::trouble() const {
  if (state_->connected) return std::nullopt;
  return Trouble{state_->good, state_->last_trouble};
}

Address Uplink::local_address() const {
  return state_->connected ? dlaunch::local_address(state_->socket.native_handle()) : Address{};
}

void Uplink::tell(wire::Type type, BytesView payload) {
  if (!state_->connected) return;
  wire::encode_frame(state_->unsent, {0, type, 0, 0, 0}, payload);
  state_->flush_soon();
}

void Uplink::close() {
  State& s = *state_;
  if (s.closed) return;
  if (!s.connected) return s.end();
  wire::encode_frame(s.unsent, {0, wire::Type::goodbye, 0, 0, 0}, BytesView{});
  s.closed = true;
  s.connected = false;
  s.unanswered.clear();
  ++s.generation;  // Nobody reads but say_goodbye.
  boost::system::error_code ignored;
  s.socket.cancel(ignored);
  s.timer.cancel();
  asio::co_spawn(s.io, State::say_goodbye(state_), rethrow);
}

void Uplink::State::end() {
  closed = true;
  connected = false;
  resolver.cancel();
  unanswered.clear();
  disconnect();
}

// ---- Requests ----

std::uint64_t Uplink::request(wire::Type type, std::uint64_t epoch, BytesView payload,
                              Answer answer) {
  State& s = *state_;
  const std::uint64_t number = s.next_request++;
  State::Pending& pending = s.unanswered[number];
  pending.type = type;
  pending.answer = std::move(answer);
  wire::encode_frame(pending.frame, {0, type, 0, number, epoch}, payload);
  if (const auto offset = timeout_offset(type, payload)) {
    pending.timeout_at = wire::header_bytes + *offset;
    wire::Timeout timeout;
    std::memcpy(&timeout.microseconds, payload.data() + *offset, sizeof timeout.microseconds);
    pending.deadline = timeout.deadline(Clock::now());
  }
  if (s.must_wait(type)) {
    pending.held = true;
    (type == wire::Type::pop ? s.held_pops : s.held).push_back(number);
  } else {
    s.begin(pending);
  }
  return number;
}

void Uplink::forget(std::uint64_t number) {
  State& s = *state_;
  const auto found = s.unanswered.find(number);
  if (found == s.unanswered.end()) return;
  State::Pending& pending = found->second;
  if (!can_be_cancelled(pending.type)) {
    pending.answer = nullptr;
    return;
  }
  if (!pending.held) {
    if (s.connected && !s.replaying) {
      wire::encode_frame(s.unsent, {0, wire::Type::cancel, 0, 0, 0}, wire::Cancel{number});
      s.flush_soon();
    }
    s.count(pending.type, -1);
  }
  s.unanswered.erase(found);
  s.release_held();
}

bool Uplink::State::must_wait(wire::Type type) const {
  if (type == wire::Type::pop) return pops >= pops_max;
  return !held.empty() || (wire::is_change(type) && changes >= changes_max);
}

void Uplink::State::count(wire::Type type, int by) {
  if (!wire::is_change(type)) return;
  auto& counter = type == wire::Type::pop ? pops : changes;
  counter += static_cast<std::size_t>(by);
}

void Uplink::State::begin(Pending& pending) {
  pending.held = false;
  count(pending.type, 1);
  if (connected && !replaying) send(pending);
}

/// The time that is left may have changed since it was asked.
void Uplink::State::send(Pending& pending) {
  if (pending.timeout_at != 0) {
    const auto left = wire::Timeout::until(pending.deadline, Clock::now());
    std::memcpy(pending.frame.data() + pending.timeout_at, &left.microseconds,
                sizeof left.microseconds);
  }
  unsent.insert(unsent.end(), pending.frame.begin(), pending.frame.end());
  flush_soon();
}

void Uplink::State::send_unanswered() {
  // However much it is, it has to be sent; what comes on top of it is limited.
  for (const auto& [number, pending] : unanswered) {
    if (!pending.held) replayed += pending.frame.size();
  }
  for (auto& [number, pending] : unanswered) {
    if (!pending.held) send(pending);
  }
}

void Uplink::State::take_answer(const FrameReader::Frame& frame) {
  const auto found = unanswered.find(frame.header.request);
  if (found == unanswered.end()) return;  // Forgotten meanwhile, or a ping.
  if ((frame.header.flags & wire::more) != 0) {
    // A copy, for the callback may forget its request.
    if (const Answer answer = found->second.answer) answer(frame.header, frame.payload);
    return;
  }
  const auto ended = unanswered.extract(found);
  count(ended.mapped().type, -1);
  release_held();
  if (ended.mapped().answer) ended.mapped().answer(frame.header, frame.payload);
}

void Uplink::State::release_held() {
  const auto release = [&](std::deque<std::uint64_t>& from, auto has_room) {
    while (!from.empty()) {
      const auto next = unanswered.find(from.front());
      if (next != unanswered.end()) {
        if (!has_room(next->second.type)) return;
        begin(next->second);
      }
      from.pop_front();
    }
  };
  release(held, [&](wire::Type type) { return !wire::is_change(type) || changes < changes_max; });
  release(held_pops, [&](wire::Type) { return pops < pops_max; });
}

void Uplink::State::ping() {
  pinged = true;
  wire::encode_frame(unsent, {0, wire::Type::ping, 0, next_request++, 0}, BytesView{});
  flush_soon();
}

}  // namespace dlaunch::store
