#include "runtime/base/os/socket.hpp"
#include "runtime/store/client/socket_turn.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <cerrno>
#include <utility>

#include <boost/asio/post.hpp>

namespace dlaunch::store {
namespace {

using asio::posix::stream_descriptor;
/// The number of reads after which other handlers of the loop get their turn.
constexpr int reads_per_turn = 16;
/// How long the other end may take to read the queued bytes when we go.
constexpr auto goodbye_timeout = std::chrono::seconds(1);

}  // namespace

void Uplink::State::welcomed() {
  serving = true;
  first_until = Clock::time_point::max();
  backoff = options.backoff_min;
  const auto mine = generation;
  const std::uint64_t remembers = session.welcome().memory;
  events->on_welcome(session.welcome());
  session.resume(Clock::now());
  flush_soon();
  if (generation != mine) return;
  const auto before = std::exchange(memory, remembers);
  if (before && reconnected) {
    const auto call = reconnected;  // Copied, since it may destroy the Uplink.
    call(before != remembers);
    if (generation != mine) return;
  }
  take_events();  // Frames pushed right behind WELCOME are read already.
  if (generation == mine) await_readable();
}

/// Serves until the connection is lost; pings a silent other end.
asio::awaitable<void> Uplink::State::watch_silence() {
  while (session.open()) {
    timer.expires_at(session.due());
    co_await await_timer();
    session.tick(Clock::now());
    flush_soon();
  }
}

bool Uplink::State::lost() {
  if (!session.broken() || !std::exchange(serving, false)) return false;
  last_trouble = session.broken()->error.what();
  good = Clock::now();
  disconnect();
  return true;
}

void Uplink::State::disconnect() {
  ++generation;
  boost::system::error_code ignored;  // Nothing more can be done about it.
  socket.close(ignored);
  timer.cancel();
}

// ---- Reading ----

void Uplink::State::await_readable() {
  socket.async_wait(stream_descriptor::wait_read,
                    [self = shared_from_this(), mine = generation](const auto& error) {
                      if (!error && self->generation == mine) self->on_readable();
                    });
}

void Uplink::State::on_readable() {
  const auto mine = generation;
  for (int i = 0; i < reads_per_turn; ++i) {
    if (!receive(session, socket.native_handle())) break;
    take_events();
    if (generation != mine) return;
  }
  await_readable();
}

void Uplink::State::take_events() {
  const auto mine = generation;
  while (generation == mine) {
    const auto event = session.next(Clock::now());
    if (!event) break;
    if (event->kind == ClientSession::Event::Kind::push) {
      events->on_push(event->header, event->payload);
    } else if (event->answer) {
      event->answer(event->header, event->payload);
    }
  }
  if (generation == mine) flush_soon();
}

// ---- Writing ----

/// All requests of one turn of the loop go out together.
void Uplink::State::flush_soon() {
  if (lost() || session.unsent().empty() || std::exchange(flush_posted, true)) return;
  asio::post(io, [self = shared_from_this()] {
    self->flush_posted = false;
    if (self->session.open() && !self->writable_awaited) self->flush();
  });
}

void Uplink::State::flush() {
  switch (send(session, socket.native_handle())) {
    case Sent::all:
      break;
    case Sent::broken:
      session.ended(errno_text(errno));
      break;
    case Sent::blocked:
      writable_awaited = true;
      socket.async_wait(stream_descriptor::wait_write,
                        [self = shared_from_this(), mine = generation](const auto& error) {
                          if (error || self->generation != mine) return;
                          self->writable_awaited = false;
                          self->session.writable_again(Clock::now());
                          self->flush();
                        });
  }
  lost();
}

/// Sends what is queued, then the end of the stream, then awaits the other end's end: closing a
/// socket with unread input would reset it, and GOODBYE could be lost.
asio::awaitable<void> Uplink::State::say_goodbye(std::shared_ptr<State> self) {
  State& s = *self;
  asio::steady_timer patience(s.io, goodbye_timeout);
  const int number = s.socket.native_handle();
  while (send(s.session, number) == Sent::blocked) {
    if (!co_await s.socket_before(patience, stream_descriptor::wait_write)) break;
  }
  ::shutdown(number, SHUT_WR);
  for (;;) {
    while (!s.session.broken() && receive(s.session, number)) s.session.next(Clock::now());
    if (s.session.broken()) break;
    if (!co_await s.socket_before(patience, stream_descriptor::wait_read)) break;
  }
  s.disconnect();
}

}  // namespace dlaunch::store
