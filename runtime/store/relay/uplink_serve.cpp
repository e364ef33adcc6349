#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <algorithm>
#include <cerrno>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace dlaunch::store {
namespace {

using asio::posix::stream_descriptor;
constexpr auto awaited = asio::as_tuple(asio::use_awaitable);
/// After so many reads the other handlers of the loop get their turn.
constexpr int reads_per_turn = 16;
constexpr std::size_t sealed_bytes_max = 64u << 10;  ///< Ciphertext is made in such pieces.
constexpr std::size_t kept_buffer_bytes = 1u << 20;
/// A timer that goes off later than this, or than a small part of the silence that is borne, says
/// that this process stood still.
constexpr Clock::duration own_stall_min = std::chrono::seconds(1);
/// How long the other end may take to read what is queued when we go.
constexpr auto goodbye_timeout = std::chrono::seconds(1);

}  // namespace

void Uplink::State::welcomed(const wire::Welcome& welcome) {
  connected = true;
  first_until = Clock::time_point::max();
  loss.reset();
  backoff = options.backoff_min;
  heard = Clock::now();
  pinged = false;
  unsent.clear();
  sent = replayed = 0;
  writable_awaited = false;
  replaying = true;
  events->on_welcome(welcome);
  replaying = false;
  if (!connected) return;
  send_unanswered();
  const auto mine = generation;
  const auto before = std::exchange(memory, welcome.memory);
  if (before && reconnected) {
    const auto call = reconnected;  // It may destroy the Uplink.
    call(before != welcome.memory);
    if (generation != mine) return;
  }
  take_frames();  // Frames pushed right behind WELCOME are read already.
  if (generation == mine) await_readable();
}

/// Until the connection is lost: asks whether the other end is there when it says nothing.
asio::awaitable<void> Uplink::State::watch_silence() {
  while (connected) {
    const auto next = heard + (pinged ? options.silence_max : options.silence_max / 3);
    if (next <= Clock::now()) {
      if (pinged) {
        lose(Error(Errc::peer_lost, "lost " + peer() + ": nothing came from it for " +
                                        duration_text(options.silence_max)));
      } else {
        ping();
      }
      continue;
    }
    timer.expires_at(next);
    co_await timer.async_wait(awaited);
    // We stood still, and what it said meanwhile is still to be read: it is asked again.
    if (connected && Clock::now() - next > std::min(own_stall_min, options.silence_max / 4)) {
      heard = Clock::now();
      pinged = false;
      ping();
    }
  }
}

void Uplink::State::lose(const Error& error) {
  if (!connected) return;
  connected = false;
  loss = error;
  last_trouble = error.what();
  good = Clock::now();
  disconnect();
}

void Uplink::State::disconnect() {
  ++generation;
  boost::system::error_code ignored;  // There is no more to be done with it.
  socket.close(ignored);
  Bytes().swap(unsent);
  sent = 0;
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
    const auto received = reader.receive(socket.native_handle());
    if (received == FrameReader::Received::nothing) break;
    if (received == FrameReader::Received::closed) {
      return lose(Error(Errc::peer_lost, "lost " + peer() + ": " +
                                             (errno == 0 ? std::string("it closed the connection")
                                                         : errno_text(errno))));
    }
    heard = Clock::now();
    pinged = false;
    take_frames();
    if (generation != mine) return;
  }
  await_readable();
}

void Uplink::State::take_frames() {
  const auto mine = generation;
  while (generation == mine) {
    std::optional<FrameReader::Frame> frame;
    try {
      frame = reader.next();
    } catch (const Error& error) {
      return lose(Error(Errc::peer_lost, "lost " + peer() + ": " + error.what()));
    }
    if (!frame) return;
    if ((frame->header.flags & wire::reply) != 0) {
      take_answer(*frame);
    } else {
      events->on_push(frame->header, frame->payload);
    }
  }
}

// ---- Writing ----

/// Everything that one turn of the loop asks for goes out together.
void Uplink::State::flush_soon() {
  if (unsent.size() - sent > unsent_bytes_max + replayed) {
    return lose(Error(Errc::peer_lost, "lost " + peer() + ": it does not read; " +
                                           std::to_string((unsent.size() - sent) >> 20) +
                                           " MiB wait to be sent"));
  }
  if (std::exchange(flush_posted, true)) return;
  asio::post(io, [self = shared_from_this()] {
    self->flush_posted = false;
    if (self->connected && !self->writable_awaited) self->flush();
  });
}

void Uplink::State::flush() {
  switch (write_some()) {
    case Written::all:
      return;
    case Written::broken:
      return lose(Error(Errc::peer_lost, "lost " + peer() + ": " + errno_text(errno)));
    case Written::blocked:
      writable_awaited = true;
      socket.async_wait(stream_descriptor::wait_write,
                        [self = shared_from_this(), mine = generation](const auto& error) {
                          if (error || self->generation != mine) return;
                          self->writable_awaited = false;
                          // It has taken something, so it lives: its answer may be behind much.
                          self->heard = Clock::now();
                          self->flush();
                        });
  }
}

/// The next of what is unsent, when what was sealed before is on its way.
bool Uplink::State::seal_some() {
  if (sealed_sent < sealed.size()) return true;
  sealed.clear();
  sealed_sent = 0;
  const BytesView rest = BytesView(unsent).subspan(sent);
  const BytesView part = rest.first(std::min(rest.size(), sealed_bytes_max));
  sent += part.size();
  return tls->seal(part, sealed);
}

Uplink::State::Written Uplink::State::write_some() {
  while (sent < unsent.size() || sealed_sent < sealed.size()) {
    if (tls && !seal_some()) {
      errno = EBADMSG;
      return Written::broken;
    }
    const BytesView out =
        tls ? BytesView(sealed).subspan(sealed_sent) : BytesView(unsent).subspan(sent);
    const ssize_t n =
        ::send(socket.native_handle(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Written::blocked : Written::broken;
    (tls ? sealed_sent : sent) += static_cast<std::size_t>(n);
    if (sent > kept_buffer_bytes && sent > unsent.size() / 2) {
      unsent.erase(unsent.begin(), unsent.begin() + static_cast<std::ptrdiff_t>(sent));
      sent = 0;
    }
  }
  sent = replayed = 0;
  unsent.clear();
  if (unsent.capacity() > kept_buffer_bytes) Bytes().swap(unsent);
  return Written::all;
}

/// Sends what is queued, then the end of the stream, then awaits the other end's end: closing a
/// socket with unread input would reset it, and GOODBYE could be lost.
asio::awaitable<void> Uplink::State::say_goodbye(std::shared_ptr<State> self) {
  using namespace asio::experimental::awaitable_operators;
  State& s = *self;
  asio::steady_timer patience(s.io, goodbye_timeout);
  const auto late = [](const auto& first) { return first.index() == 1; };
  for (auto written = s.write_some(); written == Written::blocked; written = s.write_some()) {
    if (late(co_await (s.socket.async_wait(stream_descriptor::wait_write, awaited) ||
                       patience.async_wait(awaited)))) {
      break;
    }
  }
  ::shutdown(s.socket.native_handle(), SHUT_WR);
  for (;;) {
    const auto received = s.reader.receive(s.socket.native_handle());
    if (received == FrameReader::Received::closed) break;
    while (received == FrameReader::Received::some && s.reader.next()) {
    }
    if (late(co_await (s.socket.async_wait(stream_descriptor::wait_read, awaited) ||
                       patience.async_wait(awaited)))) {
      break;
    }
  }
  s.disconnect();
}

}  // namespace dlaunch::store
