#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/relay/uplink_state.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace dlaunch::store {
namespace {

using namespace asio::experimental::awaitable_operators;
using asio::posix::stream_descriptor;
constexpr auto awaited = asio::as_tuple(asio::use_awaitable);

bool is_final(Errc code) {
  switch (code) {
    case Errc::timeout:
    case Errc::peer_lost:
    case Errc::unreachable:
    case Errc::aborted:
      return false;
    case Errc::mismatch:
    case Errc::refused:
    case Errc::misuse:
    case Errc::revoked:
    case Errc::unsupported:
    case Errc::version:
    case Errc::internal:
    case Errc::unauthenticated:
      return true;
  }
  return true;
}

}  // namespace

std::string Uplink::State::peer() const {
  if (options.host.empty()) return options.peer_name;
  return options.peer_name + " at " + host_port(options.host, options.port);
}

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
    s.final = false;
    try {
      co_await s.connect();
    } catch (const Error& failure) {
      error = failure;
    }
    if (!error) {
      co_await s.watch_silence();
      error = s.loss;
    }
    if (s.closed) break;
    if (s.final || s.options.host.empty()) {
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

/// From half the backoff to all of it, so that many who lost the same peer do not come at once.
asio::awaitable<void> Uplink::State::pause() {
  std::uniform_int_distribution<Clock::rep> jitter(backoff.count() / 2, backoff.count());
  const auto length = Clock::duration(jitter(random));
  backoff = std::min(backoff * 2, options.backoff_max);
  if (closed) co_return;
  timer.expires_at(std::min(Clock::now() + length, first_until));
  co_await timer.async_wait(awaited);
}

asio::awaitable<void> Uplink::State::connect() {
  if (options.connected) {
    adopt(std::move(options.connected));
    welcomed(co_await greet());
    co_return;
  }
  std::optional<Error> last;
  for (const Address& address : co_await look_up()) {
    try {
      co_await connect_to(address);
      if (options.key) co_await secure();
      welcomed(co_await greet());
      co_return;
    } catch (const Error& error) {
      last = error;
    }
    if (final || closed) break;
  }
  throw Error(*last);
}

/// The system's resolver cannot be interrupted, so a slow one is reported and waited for.
asio::awaitable<std::vector<Address>> Uplink::State::look_up() {
  using Resolver = asio::ip::tcp::resolver;
  struct Lookup {
    bool done = false;
    boost::system::error_code error;
    Resolver::results_type found;
  };
  const auto lookup = std::make_shared<Lookup>();
  const std::string what = "looking up the host name '" + options.host + "'";
  resolver.async_resolve(options.host, std::to_string(options.port), Resolver::numeric_service,
                         [self = shared_from_this(), lookup](const auto& error, auto found) {
                           *lookup = {true, error, std::move(found)};
                           self->timer.cancel();
                         });
  for (bool reported = false; !lookup->done && !closed;) {
    const Step step = next_step();
    timer.expires_at(step.until);
    co_await timer.async_wait(awaited);
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
  reader = FrameReader();
  tls.reset();
  sealed.clear();
  sealed_sent = 0;
}

/// False when the time came first.
asio::awaitable<bool> Uplink::State::await_socket(stream_descriptor::wait_type what,
                                                  Clock::time_point until) {
  timer.expires_at(until);
  const auto first = co_await (socket.async_wait(what, awaited) || timer.async_wait(awaited));
  if (closed) throw Error(Errc::aborted, joining() + ": not needed any more");
  co_return first.index() == 0;
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
  if (error != 0) throw connect_error(address, error);
}

/// The TLS handshake. Its messages are the first on the connection, and fit into the socket.
asio::awaitable<void> Uplink::State::secure() {
  const std::string what = joining();
  const Step step = next_step();
  tls = connect_tls(options.hello.job, *options.key);
  Bytes plain;
  std::array<std::byte, TlsChannel::handshake_bytes_max> read{};
  std::size_t got = 0;
  for (;;) {
    Bytes out;
    const auto fed = tls->feed(BytesView(read).first(got), plain, out);
    static_cast<void>(  // Reading tells.
        ::send(socket.native_handle(), out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
    if (fed == TlsChannel::Fed::broken) {
      const Error error = error_of(*tls, what);
      final = is_final(error.errc());
      throw Error(error);
    }
    if (tls->established()) break;
    if (!co_await await_socket(stream_descriptor::wait_read, step.until)) {
      throw Error(Errc::unreachable,
                  what + ": connected, but it does not answer within " + step.text);
    }
    const ssize_t n = ::recv(socket.native_handle(), read.data(), read.size(), MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      throw Error(Errc::unreachable,
                  what + ": it closed the connection during the TLS handshake" +
                      (n < 0 ? ": " + errno_text(errno) : "; is it a rendezvous with a secret?"));
    }
    got = n < 0 ? 0 : static_cast<std::size_t>(n);
  }
  reader.read_through(*tls, std::move(plain));
}

/// Preface and HELLO there, preface and WELCOME back.
asio::awaitable<wire::Welcome> Uplink::State::greet() {
  const std::string what = joining();
  const auto [until, length] = next_step();
  const Error silent(Errc::unreachable,
                     what + ": connected, but it does not answer within " + length);
  Bytes hello;
  wire::encode_preface(hello);
  wire::encode_frame(hello, {0, wire::Type::hello, 0, 0, 0}, options.hello);
  if (tls) {
    Bytes ciphertext;
    if (!tls->seal(hello, ciphertext)) throw error_of(*tls, what);
    hello = std::move(ciphertext);
  }
  for (std::size_t written = 0; written < hello.size();) {
    const ssize_t n = ::send(socket.native_handle(), hello.data() + written, hello.size() - written,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) written += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) break;  // Reading tells.
    if (n < 0 && !co_await await_socket(stream_descriptor::wait_write, until)) throw Error(silent);
  }
  std::optional<std::uint32_t> version;
  for (;;) {
    if (!version) version = preface_of(what);
    if (version) {
      if (const auto frame = reader.next()) co_return answer_to_hello(*frame, what);
    }
    if (!co_await await_socket(stream_descriptor::wait_read, until)) throw Error(silent);
    if (reader.receive(socket.native_handle()) == FrameReader::Received::closed) {
      throw Error(Errc::unreachable,
                  what + ": it closed the connection" +
                      (errno == 0 ? std::string(" without an answer; is it one, and is the port "
                                                "right?")
                                  : ": " + errno_text(errno)));
    }
  }
}

std::optional<std::uint32_t> Uplink::State::preface_of(const std::string& what) {
  std::optional<std::uint32_t> version;
  try {
    version = reader.preface();
  } catch (const Error& error) {
    throw Error(error.errc(), what + ": " + error.what());
  }
  if (version && *version != wire::version) {
    final = true;
    throw Error(Errc::version, what + ": it speaks version " + std::to_string(*version) +
                                   " of the protocol, this side version " +
                                   std::to_string(wire::version) +
                                   "; use the same dlaunch everywhere");
  }
  return version;
}

wire::Welcome Uplink::State::answer_to_hello(const FrameReader::Frame& frame,
                                             const std::string& what) {
  if (frame.header.type == wire::Type::welcome) {
    if (auto welcome = wire::decode<wire::Welcome>(frame.payload)) return *std::move(welcome);
  } else if (frame.header.type == wire::Type::failed) {
    if (const auto failure = wire::decode<wire::Failed>(frame.payload)) {
      final = is_final(failure->code);
      throw Error(failure->code, what + ": refused: " + failure->sentence);
    }
  }
  throw Error(Errc::unreachable, what + ": it answers HELLO with a message of type " +
                                     std::to_string(static_cast<unsigned>(frame.header.type)) +
                                     ", which makes no sense");
}

}  // namespace dlaunch::store
