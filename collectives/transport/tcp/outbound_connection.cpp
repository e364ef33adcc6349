#include "collectives/transport/tcp/outbound_connection.hpp"

#include "collectives/transport/message/send_queue.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace dlaunch::transport {
namespace {

/// The largest message that is copied, with its header, into one piece to be sent.
constexpr std::size_t whole_bytes_max = 512;
/// The most attempts. A receiver closes connections that have not proved themselves in time, or if
/// there are too many. A sender that computed meanwhile, or met a flood of strangers, tries again.
constexpr int attempts_max = 40;

}  // namespace

OutboundConnection::OutboundConnection(Poller& poller, SendQueue& queue, const Hello& hello,
                                       const Key* key,
                                       std::vector<OutboundConnection*>& unaddressed)
    : poller_(poller), queue_(queue), own_hello_(hello), key_(key), unaddressed_(unaddressed) {
  await_address();
}

OutboundConnection::~OutboundConnection() { std::erase(unaddressed_, this); }

void OutboundConnection::await_address() {
  unaddressed_.push_back(this);
  state_ = State::looking_up;
}

bool OutboundConnection::wants_address() const {
  return state_ == State::looking_up && queue_.has_work();
}

void OutboundConnection::fail(std::string reason) {
  // The receiver has left since; the reason is the news.
  if (state_ == State::connecting && attempts_ > 0) reason = unproven() + "; then " + reason;
  reason_ = std::move(reason);
  watch_ = {};
  fd_.reset();
}

void OutboundConnection::connect(const Address& address) {
  fd_ =
      unique_fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int error = errno;
  if (!fd_ && is_shortage(error)) return;  // Tried again, as a lookup is.
  std::erase(unaddressed_, this);
  if (!fd_) return fail("cannot open a socket: " + errno_text(error));
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* p = reinterpret_cast<const std::byte*>(&own_hello_);
  hello_.assign(p, p + sizeof own_hello_);
  if (key_ != nullptr) {
    proving_.emplace(Proving{{own_hello_, queue_.to(), 0, fresh_nonce(), {}}});
    const Nonce& nonce = proving_->meeting.connector_nonce;
    hello_.insert(hello_.end(), nonce.begin(), nonce.end());
  }
  state_ = State::connecting;
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) ==
      0) {
    state_ = State::open;
  } else if (errno != EINPROGRESS && errno != EINTR) {
    return fail("connecting to " + address.to_string() + ": " + errno_text(errno));
  }
  // The poller reports once whenever more can be written, and at the end.
  watch_ = Poller::Watch(poller_, fd_.get(), *this, EPOLLIN | EPOLLOUT | EPOLLET);
}

bool OutboundConnection::finish_connecting() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) {
    fail("connecting: " + errno_text(error));
    return false;
  }
  sockaddr_storage peer{};
  size = sizeof peer;
  if (::getpeername(fd_.get(), reinterpret_cast<sockaddr*>(&peer), &size) != 0) return false;
  state_ = State::open;
  return true;
}

bool OutboundConnection::write_hello() {
  while (!hello_.empty()) {
    const auto sent = ::send(fd_.get(), hello_.data(), hello_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (!would_block(errno)) fail(errno_text(errno));
      return false;
    }
    hello_.erase(hello_.begin(), hello_.begin() + sent);
  }
  if (proving_) state_ = State::proving;
  return !proving_;
}

/// Messages may follow.
bool OutboundConnection::is_ready() {
  if (state_ == State::connecting && !finish_connecting()) return false;
  return state_ == State::open && (hello_.empty() || write_hello());
}

std::string OutboundConnection::unproven() const {
  return "it closed " + std::to_string(attempts_) +
         (attempts_ == 1 ? " connection" : " connections") +
         " before both sides had proved the job's key; was it given another one, or none?";
}

/// Nothing of a message was sent yet, so nothing is lost.
void OutboundConnection::connect_again() {
  proving_.reset();
  watch_ = {};
  fd_.reset();
  if (++attempts_ >= attempts_max) return fail(unproven());
  await_address();
}

void OutboundConnection::read_proof() {
  Proving& proving = *proving_;
  // Reads one byte beyond the proof: a receiver that has given us up closes behind it.
  for (;;) {
    std::byte surplus{};
    const bool complete = proving.got == challenge_bytes;
    std::byte* into = complete ? &surplus : proving.challenge.data() + proving.got;
    const auto n =
        ::recv(fd_.get(), into, complete ? 1 : challenge_bytes - proving.got, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && would_block(errno)) break;
    if (n <= 0) return connect_again();
    if (complete) return fail("it sent something that is no proof of the job's key");
    proving.got += static_cast<std::size_t>(n);
  }
  if (proving.got < challenge_bytes) return;
  const auto answer = answer_to(proving.challenge, *key_, proving.meeting);
  if (!answer) return fail("it did not prove to know the job's key");
  hello_.assign(answer->begin(), answer->end());
  proving_.reset();
  state_ = State::open;
}

/// The receiver never writes: whatever can be read is the end.
void OutboundConnection::look() {
  if (state_ == State::proving) return read_proof();
  if (state_ == State::connecting) finish_connecting();
  if (state_ != State::open || !reason_.empty()) return;
  std::byte unexpected{};
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), &unexpected, 1, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && would_block(errno)) return;
  fail(n < 0 ? errno_text(errno) : closed_text);
}

/// The queue is told last, since it may end this connection.
void OutboundConnection::on_ready(std::uint32_t events) {
  if ((events & ~std::uint32_t{EPOLLOUT}) != 0) look();
  const bool may_write = reason_.empty() && is_ready();
  if (!reason_.empty()) return queue_.look_for_end();
  if (may_write) queue_.pump();
}

/// Writes a whole message in one piece, which costs the kernel less than two. If that fails, the
/// next send fails, too, and handles it.
std::size_t OutboundConnection::write_whole(const Header& header, BytesView payload) {
  std::array<std::byte, whole_bytes_max> whole;
  std::memcpy(whole.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(whole.data() + sizeof header, payload.data(), payload.size());
  const auto sent =
      ::send(fd_.get(), whole.data(), sizeof header + payload.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return sent > 0 ? static_cast<std::size_t>(sent) : 0;
}

bool OutboundConnection::write_some(const Header& header, BytesView payload, std::size_t& sent) {
  if (!is_ready()) return false;
  const std::size_t before = sent;
  const std::size_t total = sizeof header + payload.size();
  if (sent == 0 && total <= whole_bytes_max) sent = write_whole(header, payload);
  while (sent < total) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    const auto add = [&](const void* data, std::size_t bytes) {
      // iovec has no const; sendmsg only reads.
      parts[count++] = {const_cast<void*>(data), bytes};
    };
    if (sent < sizeof header) {
      add(reinterpret_cast<const std::byte*>(&header) + sent, sizeof header - sent);
    }
    const std::size_t skip = std::max(sent, sizeof header) - sizeof header;
    if (skip < payload.size()) add(payload.data() + skip, payload.size() - skip);
    msghdr out{};
    out.msg_iov = parts.data();
    out.msg_iovlen = count;
    const auto written = ::sendmsg(fd_.get(), &out, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) fail(errno_text(errno));
      break;
    }
    sent += static_cast<std::size_t>(written);
  }
  return sent != before;
}

}  // namespace dlaunch::transport
