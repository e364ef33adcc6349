#include "runtime/store/tls/tls.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::store {
namespace {

void wait_for(int socket, short events, Clock::time_point deadline, const std::string& what) {
  pollfd ready{socket, events, 0};
  int count = 0;
  do {
    count = ::poll(&ready, 1, poll_timeout_ms(deadline));
  } while (count < 0 && errno == EINTR);
  if (count == 0) throw Error(Errc::timeout, what + ": connected, but it does not answer");
}

/// An error shows when reading.
void send_all(int socket, BytesView bytes, Clock::time_point deadline, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) bytes = bytes.subspan(static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return;
    if (n < 0) wait_for(socket, POLLOUT, deadline, what);
  }
}

}  // namespace

std::unique_ptr<TlsChannel> connect_tls(const std::string& job, const Key& key) {
  if (job.size() > TlsChannel::job_bytes_max) {
    throw Error(Errc::misuse, "a job id of " + std::to_string(job.size()) + " bytes is too long");
  }
  std::string why;
  if (auto channel = crypto().connect(job, key.bytes(), why)) return channel;
  throw Error(Errc::internal, why);
}

std::unique_ptr<TlsAcceptor> accept_tls(KeyOfJob key_of) {
  const auto find = [key_of = std::move(key_of)](std::string_view job, auto to, std::string& why) {
    try {
      const Key key = key_of(job);
      std::ranges::copy(key.bytes(), to.begin());
      return true;
    } catch (const std::exception& error) {
      why = error.what();
      return false;
    }
  };
  std::string why;
  if (auto acceptor = crypto().make_acceptor(find, why)) return acceptor;
  throw Error(Errc::internal, why);
}

Error error_of(const TlsChannel& channel, const std::string& what) {
  switch (channel.trouble()) {
    case TlsChannel::Trouble::not_tls:
      return Error(Errc::unauthenticated,
                   what +
                       ": it does not speak TLS, so it cannot prove the job's "
                       "secret; was it started with one, and is the port right?");
    case TlsChannel::Trouble::unproven:
      return Error(Errc::unauthenticated, what + ": wrong secret, or no such job there");
    case TlsChannel::Trouble::none:
    case TlsChannel::Trouble::oversized:
    case TlsChannel::Trouble::garbled:
      break;
  }
  return Error(Errc::peer_lost, what +
                                    ": what came over TLS was no answer, or was changed on the "
                                    "way (" +
                                    channel.reason() + ")");
}

void shake_hands(TlsChannel& channel, int socket, Bytes& plain, Clock::time_point deadline,
                 const std::string& what) {
  std::array<std::byte, TlsChannel::handshake_bytes_max> read{};
  BytesView arrived;
  for (bool silent = true;; silent = false) {
    Bytes out;
    const auto fed = channel.feed(arrived, plain, out);
    send_all(socket, out, deadline, what);
    if (fed == TlsChannel::Fed::broken) throw error_of(channel, what);
    if (channel.established()) return;
    ssize_t n = -1;
    while (n < 0) {
      wait_for(socket, POLLIN, deadline, what);
      n = ::recv(socket, read.data(), read.size(), MSG_DONTWAIT);
      if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) break;
    }
    if (n <= 0) {
      throw Error(Errc::unreachable,
                  what + ": it closed the connection " +
                      (silent ? "when asked to speak TLS; is it a rendezvous with a secret?"
                              : "in the middle of the TLS handshake") +
                      (n < 0 ? ": " + errno_text(errno) : std::string()));
    }
    arrived = BytesView(read).first(static_cast<std::size_t>(n));
  }
}

}  // namespace dlaunch::store
