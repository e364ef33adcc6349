#include "collectives/transport/tcp/acceptor.hpp"

#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <sys/socket.h>

namespace dlaunch::transport {

Acceptor::Acceptor(Poller& poller, unique_fd listener, const Hello& own, const Key* key,
                   Admit admit)
    : poller_(poller),
      own_(own),
      key_(key),
      admit_(std::move(admit)),
      listener_(std::move(listener)),
      watch_(poller, listener_.get(), *this, EPOLLIN) {
  set_nonblocking(listener_.get(), true);
}

Acceptor::Newcomer::Newcomer(Acceptor& acceptor, unique_fd connected, Clock::time_point now)
    : acceptance(acceptor.own_, acceptor.key_, acceptor.key_ ? fresh_nonce() : Nonce{}),
      since(now),
      acceptor_(acceptor),
      fd_(std::move(connected)),
      watch_(acceptor.poller_, fd_.get(), *this, EPOLLIN) {}

unique_fd Acceptor::Newcomer::release() {
  watch_ = {};
  return fd_.release();
}

/// Whether there is room for one more. A slow newcomer makes room; otherwise the new one waits.
bool Acceptor::may_accept(Clock::time_point now) {
  if (now < accept_again_) return false;
  while (newcomers_.size() >= newcomers_max) {
    if (now - newcomers_.front().since < newcomer_slow) return false;
    newcomers_.pop_front();
    ++strangers_;
  }
  return true;
}

/// Without a key there is nothing to prove, so a sender may take its time with Hello.
void Acceptor::progress(Clock::time_point now) {
  while (key_ && !newcomers_.empty() && now - newcomers_.front().since >= proof_timeout) {
    if (!hear(newcomers_.front())) ++strangers_;
    newcomers_.pop_front();
  }
  watch_.want(may_accept(now) ? std::uint32_t{EPOLLIN} : 0);
}

Clock::time_point Acceptor::next_wake() const {
  auto first = Clock::time_point::max();
  if (!newcomers_.empty()) {
    const auto since = newcomers_.front().since;
    if (newcomers_.size() >= newcomers_max) first = std::min(first, since + newcomer_slow);
    if (key_) first = std::min(first, since + proof_timeout);
  }
  return shortage_.empty() || Clock::now() >= accept_again_ ? first
                                                            : std::min(first, accept_again_);
}

void Acceptor::on_ready(std::uint32_t) {
  const auto now = Clock::now();
  while (may_accept(now)) {
    unique_fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (would_block(errno)) return;
      const int error = errno;
      const std::string why = "it cannot accept connections: " + errno_text(error);
      if (!is_shortage(error)) throw Error(Errc::unreachable, why);
      shortage_ = why;
      accept_again_ = now + shortage_pause;
      break;
    }
    shortage_.clear();
    newcomers_.emplace_back(*this, std::move(fd), now);
    greet(newcomers_.back());
  }
  watch_.want(0);  // Until progress() finds room again.
}

void Acceptor::greet(Newcomer& newcomer) {
  if (!hear(newcomer)) return;
  newcomers_.remove_if([&](const Newcomer& each) { return &each == &newcomer; });
}

/// Reads the newcomer's Hello and proof; true when it is no newcomer any more.
bool Acceptor::hear(Newcomer& newcomer) {
  std::array<std::byte, sizeof(Hello)> part;
  for (;;) {
    const auto n = ::recv(newcomer.fd(), part.data(), newcomer.acceptance.wanted(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && would_block(errno)) return false;
    Bytes answer;
    const auto verdict = n <= 0 ? Acceptance::Verdict::refused
                                : newcomer.acceptance.feed(
                                      BytesView(part).first(static_cast<std::size_t>(n)), answer);
    // The first answer on a connection fits into the socket.
    const bool sent = answer.empty() ||
                      ::send(newcomer.fd(), answer.data(), answer.size(),
                             MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(answer.size());
    if (verdict == Acceptance::Verdict::more && sent) continue;
    const bool admitted = verdict == Acceptance::Verdict::admitted &&
                          admit_(newcomer.acceptance.rank(), newcomer.release());
    if (!admitted) ++strangers_;
    return true;
  }
}

}  // namespace dlaunch::transport
