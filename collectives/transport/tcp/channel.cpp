#include "collectives/transport/tcp/channel.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace dlaunch::transport {
namespace {

constexpr std::size_t buffer_bytes = 64u << 10;
/// One channel is read no longer than this before the others get their turn.
constexpr std::size_t turn_bytes_max = 1u << 20;
/// A message of so much, with its header, is copied into one piece to be sent.
constexpr std::size_t whole_bytes_max = 512;
/// Between two requests to spare acknowledgements: a timer of the kernel's undoes them.
constexpr unsigned reads_between_requests = 16;
constexpr std::size_t controls_max = 64;
/// A receiver closes those that have not proved themselves in time, or when too many are about it:
/// a sender that computed meanwhile, or met a flood of strangers, tries again.
constexpr int attempts_max = 40;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void OutChannel::post(Outgoing& message) {
  message.sent = 0;
  message.state = Outgoing::State::waiting;
  if (state_ == State::broken) {
    message.state = Outgoing::State::failed;
    return;
  }
  queue_.push_back(&message);
}

void OutChannel::post_control(const Header& header, Bytes payload) {
  if (controls_.size() >= controls_max || state_ == State::broken) return;
  auto control = std::make_unique<Control>();
  control->payload = std::move(payload);
  control->message.header = header;
  control->message.payload = control->payload;
  queue_.push_back(&control->message);
  controls_.push_back(std::move(control));
}

void OutChannel::withdraw(Outgoing& message) {
  const auto found = std::find(queue_.begin(), queue_.end(), &message);
  if (found == queue_.end()) return;
  if (message.sent > 0) {
    fail("a call that was given up had sent a part of its message");
  } else {
    queue_.erase(found);
  }
  message.state = Outgoing::State::failed;
}

void OutChannel::fail(std::string reason) {
  // It has left since; why it did is the news.
  if (state_ == State::connecting && attempts_ > 0) reason = unproven() + "; then " + reason;
  state_ = State::broken;
  reason_ = std::move(reason);
  fd_.reset();
  ring_.reset();
  for (Outgoing* message : queue_) message->state = Outgoing::State::failed;
  queue_.clear();
  controls_.clear();
}

void OutChannel::connect(const Address& to, const Hello& hello, int rank, const Key* key) {
  fd_ = unique_fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd_ && is_shortage(errno)) return wait_for_address();  // Tried again, as a lookup is.
  if (!fd_) return fail("cannot open a socket: " + errno_text(errno));
  const int on = 1;
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto* p = reinterpret_cast<const std::byte*>(&hello);
  hello_.assign(p, p + sizeof hello);
  if (key != nullptr) {
    proving_.emplace(Proving{key, {hello, rank, 0, fresh_nonce(), {}}});
    const Nonce& nonce = proving_->meeting.connector_nonce;
    hello_.insert(hello_.end(), nonce.begin(), nonce.end());
  }
  state_ = State::connecting;
  if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0) {
    state_ = State::open;
  } else if (errno != EINPROGRESS && errno != EINTR) {
    fail("connecting to " + to.to_string() + ": " + errno_text(errno));
  }
}

void OutChannel::open(std::unique_ptr<RingWriter> ring) {
  ring_ = std::move(ring);
  state_ = State::open;
}

bool OutChannel::finish_connecting() {
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

bool OutChannel::write_hello() {
  const auto sent = ::send(fd_.get(), hello_.data(), hello_.size(), MSG_NOSIGNAL);
  if (sent < 0) {
    if (!would_block(errno) && errno != EINTR) fail(errno_text(errno));
    return false;
  }
  hello_.erase(hello_.begin(), hello_.begin() + sent);
  if (!hello_.empty() || !proving_) return hello_.empty();
  state_ = State::proving;
  return false;
}

std::string OutChannel::unproven() const {
  return "it closed " + std::to_string(attempts_) +
         (attempts_ == 1 ? " connection" : " connections") +
         " before both sides had proved the job's key; was it given another one, or none?";
}

/// Nothing of a message was sent yet, so nothing is lost.
void OutChannel::connect_again() {
  proving_.reset();
  fd_.reset();
  if (++attempts_ >= attempts_max) {
    return fail(unproven());
  }
  state_ = State::looking_up;
}

void OutChannel::read_proof() {
  Proving& proving = *proving_;
  // One byte more than there can be: a receiver that has given us up says so behind its proof.
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
  const auto answer = answer_to(proving.challenge, *proving.key, proving.meeting);
  if (!answer) return fail("it did not prove to know the job's key");
  hello_.assign(answer->begin(), answer->end());
  proving_.reset();
  state_ = State::open;
  pump();
}

void OutChannel::pop_front() {
  Outgoing* message = queue_.front();
  queue_.pop_front();
  message->state = Outgoing::State::done;
  // Controls are sent in the order in which they were queued.
  if (!controls_.empty() && message == &controls_.front()->message) controls_.pop_front();
}

/// True when the first message is out.
bool OutChannel::write_front_to_ring() {
  Outgoing& message = *queue_.front();
  ring_->write_some(message.header, message.payload, message.sent);
  if (message.sent == sizeof(Header) + message.payload.size()) return pop_front(), true;
  if (const char* why = ring_->end()) fail(why);
  return false;
}

/// In one piece, for which the kernel does less than for two.
void OutChannel::write_whole(Outgoing& message) {
  std::array<std::byte, whole_bytes_max> whole;
  std::memcpy(whole.data(), &message.header, sizeof(Header));
  const BytesView payload = message.payload;
  if (!payload.empty()) std::memcpy(whole.data() + sizeof(Header), payload.data(), payload.size());
  const auto sent =
      ::send(fd_.get(), whole.data(), sizeof(Header) + payload.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // If that failed, the next send fails again, and is dealt with there.
  if (sent > 0) message.sent = static_cast<std::size_t>(sent);
}

/// Writes the first message as far as the socket takes it; true when it is out.
bool OutChannel::write_front() {
  if (ring_) return write_front_to_ring();
  Outgoing& message = *queue_.front();
  const std::size_t total = sizeof(Header) + message.payload.size();
  if (message.sent == 0 && total <= whole_bytes_max) write_whole(message);
  while (message.sent < total) {
    std::array<iovec, 2> parts{};
    std::size_t count = 0;
    const auto add = [&](const void* data, std::size_t bytes) {
      // iovec has no const; sendmsg only reads.
      parts[count++] = {const_cast<void*>(data), bytes};
    };
    if (message.sent < sizeof(Header)) {
      add(reinterpret_cast<const std::byte*>(&message.header) + message.sent,
          sizeof(Header) - message.sent);
    }
    const std::size_t skip = std::max(message.sent, sizeof(Header)) - sizeof(Header);
    if (skip < message.payload.size()) {
      add(message.payload.data() + skip, message.payload.size() - skip);
    }
    msghdr out{};
    out.msg_iov = parts.data();
    out.msg_iovlen = count;
    const auto sent = ::sendmsg(fd_.get(), &out, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (!would_block(errno)) fail(errno_text(errno));
      return false;
    }
    message.sent += static_cast<std::size_t>(sent);
  }
  pop_front();
  return true;
}

/// The receiver never writes: whatever can be read is the end.
void OutChannel::look_for_end() {
  if (state_ == State::proving) return read_proof();
  if (state_ != State::open) return;
  if (ring_) {
    if (const char* why = ring_->end()) fail(why);
    return;
  }
  std::byte unexpected{};
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), &unexpected, 1, MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && would_block(errno)) return;
  fail(n < 0 ? errno_text(errno) : "it closed the connection");
}

bool OutChannel::pump() {
  if (state_ == State::connecting && !finish_connecting()) return state_ == State::broken;
  if (state_ != State::open) return false;
  if (!hello_.empty() && !write_hello()) return state_ == State::broken;
  bool moved = false;
  while (state_ == State::open && !queue_.empty()) {
    const std::size_t before = queue_.front()->sent;
    Outgoing* front = queue_.front();
    if (!write_front()) {
      return moved || state_ == State::broken || front->sent != before;
    }
    moved = true;
  }
  return moved;
}

/// One recv; false when the socket has no more for now.
bool InChannel::read_some(std::span<std::byte> into, std::size_t& got) {
  got = 0;
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), into.data(), into.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    got = static_cast<std::size_t>(n);
    return got == into.size();  // A short read: the next poll tells when there is more.
  }
  if (n < 0 && would_block(errno)) return false;
  closed_ = true;
  reason_ = n == 0 ? "it closed the connection" : errno_text(errno);
  return false;
}

/// Nothing more can be handed on until somebody receives what has come.
bool InChannel::is_held_up(Inbox& inbox) {
  held_ = inbox.room(from_).empty() && inbox.is_receiving(from_);
  return held_;
}

bool InChannel::pump(Inbox& inbox, const OnControl& on_control) {
  bool moved = feed(inbox, on_control);
  std::size_t total = 0;
  bool more = true;
  while (more && !ended_ && total < turn_bytes_max) {
    if (is_held_up(inbox)) return moved;  // Nothing is read, so that the sender feels it.
    if (closed_) break;
    const auto room = inbox.room(from_);
    std::size_t got = 0;
    if (room.size() >= direct_bytes_min && begin_ == end_) {
      more = read_some(room.first(std::min(room.size(), turn_bytes_max)), got);
      inbox.advance(from_, got);
    } else {
      // If a long message is waited for, only its header is read here, so that nothing is copied.
      more = read_into_buffer(inbox.awaits(from_, direct_bytes_min) ? sizeof(Header) : buffer_bytes,
                              got);
      feed(inbox, on_control);
    }
    total += got;
    moved = moved || got > 0;
  }
  // All that came before was handed on: what is left is a part of a message.
  if (closed_ && !is_held_up(inbox)) ended_ = true;
  return moved || ended_;
}

/// The rest in the buffer is the beginning of a header or of a control message. It holds
/// `bytes_max` afterwards at most, unless that is too little for it to be of use.
bool InChannel::read_into_buffer(std::size_t bytes_max, std::size_t& got) {
  if (buffer_.empty()) buffer_.resize(buffer_bytes);
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  if (bytes_max <= end_) bytes_max = buffer_bytes;
  const bool more = read_some(std::span(buffer_).subspan(end_, bytes_max - end_), got);
  end_ += got;
  if (got > 0 && reads_++ % reads_between_requests == 0) spare_acknowledgements();
  return more;
}

/// A channel carries nothing back that could take an acknowledgement along, so the kernel sends one
/// for each small message while that is read, which takes as long as reading it. It sends half as
/// many on a connection that it believes to be interactive.
void InChannel::spare_acknowledgements() noexcept {
  const int off = 0;
  // A hint: where it is not taken, nothing but time is lost.
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

bool InChannel::take(Receive& receive) {
  if (ended_ || in_control_) return false;
  const std::size_t wanted = sizeof(Header) + receive.into.size();
  if (end_ - begin_ < wanted && !closed_) {
    std::size_t got = 0;
    read_into_buffer(buffer_bytes, got);
  }
  // Also its end is still to be told, by pump().
  held_ = begin_ != end_ || closed_;
  Header header;
  if (end_ - begin_ < wanted) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (!is_plausible(header) || !fits(receive, header)) return false;
  if (!receive.into.empty()) {
    std::memcpy(receive.into.data(), buffer_.data() + begin_ + sizeof header, receive.into.size());
  }
  begin_ += wanted;
  held_ = begin_ != end_ || closed_;
  receive.state = Receive::State::done;
  receive.source = from_;
  receive.header = header;
  return true;
}

bool InChannel::feed_control(const OnControl& on_control) {
  if (end_ - begin_ < control_.bytes) return false;
  const BytesView payload(buffer_.data() + begin_, control_.bytes);
  begin_ += control_.bytes;
  in_control_ = false;
  on_control(from_, control_, payload);
  return true;
}

/// Hands buffered bytes on until they are used up, or held; true if any were.
bool InChannel::feed(Inbox& inbox, const OnControl& on_control) {
  bool moved = false;
  while (!ended_) {
    if (in_control_) {  // Its payload may be empty.
      if (!feed_control(on_control)) break;
      moved = true;
      continue;
    }
    if (begin_ == end_) break;
    if (inbox.is_receiving(from_)) {
      const auto room = inbox.room(from_);
      if (!inbox.is_receiving(from_)) continue;  // An empty message was held and now fitted.
      if (room.empty()) return moved;
      const std::size_t part = std::min(room.size(), end_ - begin_);
      std::memcpy(room.data(), buffer_.data() + begin_, part);
      begin_ += part;
      inbox.advance(from_, part);
      moved = true;
      continue;
    }
    Header header;
    if (end_ - begin_ < sizeof header) break;
    std::memcpy(&header, buffer_.data() + begin_, sizeof header);
    begin_ += sizeof header;
    moved = true;
    if (!is_plausible(header)) {
      ended_ = true;
      reason_ = "it sent something that is no message of ours";
    } else if (header.kind == Kind::collective || header.kind == Kind::message) {
      inbox.begin(from_, header);
    } else {
      control_ = header;
      in_control_ = true;
    }
  }
  return moved;
}

}  // namespace dlaunch::transport
