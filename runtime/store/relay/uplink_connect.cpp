#include "runtime/base/deadline.hpp"
#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/client/socket_turn.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <algorithm>
#include <cerrno>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

namespace dlaunch::store {

using asio::posix::stream_descriptor;

void Uplink::State::report(const Error& error) {
  last_trouble = error.what();
  if (!closed) events->on_trouble(error, good);
}

Uplink::State::Step Uplink::State::next_step() const {
  const auto now = Clock::now();
  if (first_until <= now || first_until - now >= options.step_max) {
    return {now + options.step_max, duration_text(options.step_max)};
  }
  return {first_until, duration_text(std::chrono::ceil<std::chrono::seconds>(first_until - now))};
}

asio::awaitable<void> Uplink::State::run(std::shared_ptr<State> self) {
  State& s = *self;
  s.good = Clock::now();
  s.first_until = deadline_after(s.options.first_max, s.good);
  while (!s.closed) {
    std::optional<Error> error;
    try {
      co_await s.connect();
    } catch (const Error& failure) {
      error = failure;
    }
    if (!error) {
      co_await s.watch_silence();
      if (s.session.broken()) error = s.session.broken()->error;
    }
    if (s.closed) break;
    if (s.final() || s.options.host.empty()) {
      s.closed = true;
      s.socket.close();
      s.last_trouble = error->what();
      s.events->on_refused(*error);
      break;
    }
    s.report(*error);
    co_await s.pause();
    if (s.closed || Clock::now() < s.first_until) continue;
    s.first_until = Clock::time_point::max();
    s.report(*error);
  }
}

/// A random pause of half the backoff to all of it, so that nodes that lost the same peer do not
/// come at once.
asio::awaitable<void> Uplink::State::pause() {
  std::uniform_int_distribution<Clock::rep> jitter(backoff.count() / 2, backoff.count());
  const auto length = Clock::duration(jitter(random));
  backoff = std::min(backoff * 2, options.backoff_max);
  if (closed) co_return;
  timer.expires_at(std::min(Clock::now() + length, first_until));
  co_await await_timer();
}

asio::awaitable<void> Uplink::State::connect() {
  if (options.connected) {
    adopt(std::move(options.connected));
    co_await greet(false);
    co_return;
  }
  std::optional<Error> last;
  for (const Address& address : co_await look_up()) {
    try {
      co_await connect_to(address);
      co_await greet(true);
      co_return;
    } catch (const Error& error) {
      last = error;
    }
    if (final() || closed) break;
  }
  throw Error(*last);
}

/// The system's resolver cannot be interrupted, so a slow one is reported and waited for.
asio::awaitable<std::vector<Address>> Uplink::State::look_up() {
  if (options.host.starts_with(unix_prefix)) {
    co_return std::vector{unix_address(std::string_view(options.host).substr(unix_prefix.size()))};
  }
  using Resolver = asio::ip::tcp::resolver;
  struct Lookup {
    bool done = false;
    boost::system::error_code error;
    Resolver::results_type found;
  };
  const auto lookup = std::make_shared<Lookup>();
  const std::string what = "looking up the host name " + in_quotes(options.host);
  resolver.async_resolve(options.host, std::to_string(options.port), Resolver::numeric_service,
                         [self = shared_from_this(), lookup](const auto& error, auto found) {
                           *lookup = {true, error, std::move(found)};
                           self->timer.cancel();
                         });
  for (bool reported = false; !lookup->done && !closed;) {
    const Step step = next_step();
    timer.expires_at(step.until);
    co_await await_timer();
    if (lookup->done || std::exchange(reported, true)) continue;
    report(Error(Errc::unreachable,
                 what + ": no answer from the name service for " + step.text + "; still waiting"));
  }
  if (closed) throw Error(Errc::aborted, what + ": not needed any more");
  if (lookup->error) {
    throw Error(Errc::unreachable, what + " failed: " + lookup->error.message());
  }
  std::vector<Address> addresses;
  for (const auto& entry : lookup->found) {
    const auto endpoint = entry.endpoint();
    Address& address = addresses.emplace_back();
    std::memcpy(&address.storage, endpoint.data(), endpoint.size());
    address.size = static_cast<socklen_t>(endpoint.size());
  }
  if (addresses.empty()) throw Error(Errc::unreachable, what + " failed: it has no address");
  co_return addresses;
}

void Uplink::State::adopt(unique_fd connected_socket) {
  const int family = dlaunch::local_address(connected_socket.get()).storage.ss_family;
  if (family == AF_INET || family == AF_INET6) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(options.silence_max).count();
    set_tcp_option(connected_socket.get(), TCP_NODELAY, 1);
    set_tcp_option(connected_socket.get(), TCP_USER_TIMEOUT, static_cast<int>(ms));
    set_tcp_option(connected_socket.get(), tcp_rto_max_ms, resend_pause_ms_max);
  }
  ++generation;
  socket.close();
  socket.assign(connected_socket.release());
  writable_awaited = false;
}

asio::awaitable<void> Uplink::State::await_timer() {
  boost::system::error_code cancelled;  // A cancelled timer counts like one whose time has come.
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
}

asio::awaitable<bool> Uplink::State::socket_before(asio::steady_timer& end,
                                                   stream_descriptor::wait_type what) {
  struct Race {
    bool over = false, late = false;
  };
  const auto race = std::make_shared<Race>();
  end.async_wait([self = shared_from_this(), race](const auto&) {
    if (race->over) return;
    race->late = true;
    boost::system::error_code ignored;  // A closed socket waits for nothing.
    self->socket.cancel(ignored);
  });
  boost::system::error_code ignored;  // Reading or writing will show what is wrong.
  co_await socket.async_wait(what, asio::redirect_error(asio::use_awaitable, ignored));
  race->over = true;
  end.cancel();
  co_return !race->late;
}

/// False when the time came first.
asio::awaitable<bool> Uplink::State::await_socket(stream_descriptor::wait_type what,
                                                  Clock::time_point until) {
  timer.expires_at(until);
  const bool in_time = co_await socket_before(timer, what);
  if (closed) throw Error(Errc::aborted, "joining " + peer + ": not needed any more");
  co_return in_time;
}

asio::awaitable<void> Uplink::State::connect_to(Address address) {
  unique_fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw Error(Errc::unreachable, "cannot open a socket: " + errno_text(errno));
  const int number = fd.get();
  adopt(std::move(fd));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
  int error = ::connect(number, generic, address.size) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    const auto until = next_step().until;
    if (!co_await await_socket(stream_descriptor::wait_write, until)) {
      throw connect_error(address, ETIMEDOUT);
    }
    socklen_t size = sizeof error;
    ::getsockopt(number, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0 && is_connected_to_itself(number)) error = ECONNREFUSED;
  if (error != 0) throw connect_refusal(address, error);
}

/// A daemon opens its socket to others a moment after it has made it, so one refusal may pass; the
/// connection of one that was let in before comes back with the daemon.
Error Uplink::State::connect_refusal(const Address& address, int error) {
  const bool barred =
      address.storage.ss_family == AF_UNIX && (error == EACCES || error == EPERM) && !memory;
  shut_out = barred ? shut_out + 1 : 0;
  if (shut_out < 2) return connect_error(address, error);
  const PeerUser self{.uid = ::geteuid(), .groups = {}, .pid = ::getpid()};
  return {Errc::unauthenticated, "joining " + peer + ": refused: the socket " +
                                     address.to_string() + " is not for " + self.to_string() +
                                     ", whom the mode of its file or of a folder keeps out"};
}

/// Until WELCOME has come.
asio::awaitable<void> Uplink::State::greet(bool sealed) {
  const auto [until, length] = next_step();
  const int number = socket.native_handle();
  session.begin(sealed, Clock::now());
  for (;;) {
    // Reading will show what is broken.
    const bool blocked = send(session, number) == Sent::blocked;
    if (session.next(Clock::now())) break;
    if (session.broken()) throw Error(session.broken()->error);
    const auto what = blocked ? stream_descriptor::wait_write : stream_descriptor::wait_read;
    if (!co_await await_socket(what, until)) {
      const std::string question = memory ? "" : silence_question(number);
      // A program of another kind may have waited for a line's end, and tell what it is.
      if (!memory && end_line(number) &&
          co_await await_socket(stream_descriptor::wait_read, Clock::now() + line_grace)) {
        receive(session, number);
        static_cast<void>(session.next(Clock::now()));
        if (session.broken()) throw Error(session.broken()->error);
      }
      throw Error(
          Errc::unreachable,
          "joining " + peer + ": connected, but it does not answer within " + length + question);
    }
    if (!blocked) receive(session, number);
  }
  welcomed();
}

}  // namespace dlaunch::store
