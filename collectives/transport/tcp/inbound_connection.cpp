#include "collectives/transport/tcp/inbound_connection.hpp"

#include "collectives/transport/message/spin_times.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dlaunch::transport {
namespace {

constexpr std::size_t buffer_bytes = 64u << 10;
/// The bytes of one connection that are read before the others get their turn.
constexpr std::size_t turn_bytes_max = 1u << 20;
/// Reads between two requests to spare acknowledgements, which a timer of the kernel undoes.
constexpr unsigned reads_between_requests = 16;

}  // namespace

InboundConnection::InboundConnection(const Surroundings& mesh, unique_fd connected, int from,
                                     Unfinished& unfinished)
    : mesh_(mesh),
      fd_(std::move(connected)),
      from_(from),
      unfinished_(unfinished),
      watch_(mesh.poller, fd_.get(), *this, EPOLLIN | EPOLLRDHUP | EPOLLET) {}

/// One recv; false when the socket has no more for now.
bool InboundConnection::read_some(std::span<std::byte> into, std::size_t& got) {
  got = 0;
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), into.data(), into.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) {
    got = static_cast<std::size_t>(n);
    // After a short read the poller reports new data, but does not report an end again.
    return got == into.size() || closing_;
  }
  if (n < 0 && would_block(errno)) return false;
  closed_ = true;
  reason_ = n == 0 ? closed_text : errno_text(errno);
  return false;
}

/// Whether nothing more can be handed on until somebody receives the present message.
bool InboundConnection::is_held_up(Inbox& inbox) {
  held_ = inbox.room(from_).empty() && inbox.is_receiving(from_);
  return held_;
}

void InboundConnection::note_unfinished() {
  if (is_listed_) return;
  unfinished_.push_back(this);
  is_listed_ = true;
}

bool InboundConnection::go_on() {
  is_listed_ = false;
  return (held_ || has_more_) && pump(mesh_.inbox, mesh_.on_control);
}

void InboundConnection::on_ready(std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) closing_ = true;
  pump(mesh_.inbox, mesh_.on_control);
}

bool InboundConnection::pump(Inbox& inbox, const OnControl& on_control) {
  if (ended_) return false;
  // Noted first: if handing on throws, it is resumed later.
  note_unfinished();
  has_more_ = true;
  bool moved = feed(inbox, on_control);
  bool more = true;
  std::size_t total = 0;
  // While the source is held nothing is read, so that the sender feels it.
  while (!is_held_up(inbox) && more && !closed_ && !ended_ && total < turn_bytes_max) {
    const auto room = inbox.room(from_);
    std::size_t got = 0;
    if (room.size() >= direct_bytes_min && begin_ == end_) {
      more = read_some(room.first(std::min(room.size(), turn_bytes_max)), got);
      inbox.advance(from_, got);
    } else {
      // If a long message is waited for, only its header is read here, so that nothing is copied.
      more = read_into_buffer(inbox.awaits_long(from_) ? sizeof(Header) : buffer_bytes, got);
      feed(inbox, on_control);
    }
    total += got;
    moved = moved || got > 0;
  }
  has_more_ = more;
  // All that came before was handed on: what is left is a part of a message.
  if (closed_ && !held_) ended_ = true;
  if (ended_) {
    held_ = has_more_ = false;
    watch_ = {};
  }
  return moved || ended_;
}

/// Reads into the buffer, which holds the beginning of a header or of a control message. Afterwards
/// it has at most `bytes_max`, unless that is too little to be of use.
bool InboundConnection::read_into_buffer(std::size_t bytes_max, std::size_t& got) {
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

/// Asks the kernel to spare acknowledgements. A connection carries no data back that could take
/// them along, so the kernel sends one for each small message, which takes as long as reading it.
/// It sends half as many if it believes the connection to be interactive.
void InboundConnection::spare_acknowledgements() noexcept {
  const int off = 0;
  // Only a hint: if it is ignored, nothing but time is lost.
  ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
}

/// Whether the buffer begins with a whole message. The length comes from outside, so nothing is
/// added to it.
bool InboundConnection::holds_message() const noexcept {
  Header header;
  if (end_ - begin_ < sizeof header) return false;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  return end_ - begin_ - sizeof header >= header.bytes;
}

bool InboundConnection::take(Receive& receive) {
  if (ended_ || in_control_) return false;
  // The buffer may be full of another message that is not for this receive and continues in the
  // socket.
  const std::size_t wanted = sizeof(Header) + receive.into.size();
  if (end_ - begin_ < wanted && !holds_message() && !closed_) {
    std::size_t got = 0;
    has_more_ = read_into_buffer(buffer_bytes, got);
  }
  // pump() still has to report its end.
  held_ = begin_ != end_ || closed_;
  if (held_ || has_more_) note_unfinished();
  if (!holds_message()) return false;
  Header header;
  std::memcpy(&header, buffer_.data() + begin_, sizeof header);
  if (!is_plausible(header) || !fits(receive, header)) return false;
  if (header.bytes > 0) {
    std::memcpy(receive.into.data(), buffer_.data() + begin_ + sizeof header, header.bytes);
  }
  begin_ += sizeof header + header.bytes;
  held_ = begin_ != end_ || closed_;
  receive.source = from_;
  receive.header = header;
  receive.state = Receive::State::done;
  return true;
}

bool InboundConnection::take_soon(Receive& receive, const LookLimit& limit) {
  if (receive.into.size() >= direct_bytes_min) return false;
  if (take(receive)) return true;
  if (!limit.allows_system_calls()) return false;
  for (const auto until = Clock::now() + spin_time; Clock::now() < until;) {
    if (take(receive)) return true;
    if (!is_worth_looking() || limit.is_over()) return false;
  }
  return false;
}

bool InboundConnection::feed_control(const OnControl& on_control) {
  if (end_ - begin_ < control_.bytes) return false;
  const BytesView payload(buffer_.data() + begin_, control_.bytes);
  begin_ += control_.bytes;
  in_control_ = false;
  on_control(from_, control_, payload);
  return true;
}

/// Hands buffered bytes on until they are used up, or held; true if any were.
bool InboundConnection::feed(Inbox& inbox, const OnControl& on_control) {
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
      reason_ = no_message_text;
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
