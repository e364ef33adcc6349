#include "runtime/store/protocol/frame_reader.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>

namespace dlaunch::store {
namespace {

constexpr std::size_t descriptors_per_message_max = 16;
constexpr std::size_t sealed_bytes_per_read = 32u << 10;
/// A buffer that one large frame has grown is given back when it is empty.
constexpr std::size_t kept_bytes_max = 1u << 20;

/// Its first line, as far as that fits into ours.
std::string printable(BytesView said) {
  constexpr std::size_t shown = 40;
  std::string text;
  for (const std::byte byte : said.first(std::min(said.size(), shown))) {
    const char letter = static_cast<char>(byte);
    if (letter == '\r' || letter == '\n') break;
    text += letter >= 0x20 && letter < 0x7f ? letter : '?';
  }
  return name_in_quotes(text);
}

}  // namespace

/// Room for the rest of the frame that has begun, and some for those behind it.
void FrameReader::make_room() {
  constexpr std::size_t least = 8u << 10;
  std::size_t wanted = least;
  if (unread().size() >= wire::header_bytes) {
    const auto header = wire::decode_header(unread());
    if (header.length <= wire::frame_bytes_max) {
      wanted = std::max(wanted, wire::header_bytes + header.length - unread().size());
    }
  }
  if (buffer_.size() - end_ >= wanted) return;
  std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= std::exchange(begin_, 0);
  if (buffer_.size() - end_ < wanted) buffer_.resize(end_ + wanted);
}

void FrameReader::read_through(TlsChannel& channel, Bytes plain) {
  tls_ = &channel;
  buffer_ = std::move(plain);
  begin_ = 0;
  end_ = buffer_.size();
}

/// TLS has nothing to answer at this point, so there is nothing to send.
FrameReader::Received FrameReader::receive_sealed(int socket) {
  std::array<std::byte, sealed_bytes_per_read> sealed;
  ssize_t size = 0;
  do {
    size = ::recv(socket, sealed.data(), sealed.size(), MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK ? Received::nothing : Received::closed;
  }
  errno = 0;
  if (size == 0) return Received::closed;
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(begin_));
  buffer_.resize(end_ - begin_);
  begin_ = 0;
  Bytes answers;
  const auto fed =
      tls_->feed(BytesView(sealed).first(static_cast<std::size_t>(size)), buffer_, answers);
  end_ = buffer_.size();
  if (fed == TlsChannel::Fed::broken) errno = EBADMSG;
  return fed == TlsChannel::Fed::open ? Received::some : Received::closed;
}

FrameReader::Received FrameReader::receive(int socket) {
  if (tls_ != nullptr) return receive_sealed(socket);
  if (begin_ == end_) {
    begin_ = end_ = 0;
    if (buffer_.size() > kept_bytes_max) Bytes(16u << 10).swap(buffer_);
  }
  make_room();
  iovec part{buffer_.data() + end_, buffer_.size() - end_};
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptors_per_message_max * sizeof(int))>
      control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  do {
    size = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    return errno == EAGAIN || errno == EWOULDBLOCK ? Received::nothing : Received::closed;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      descriptors_.emplace_back(fd);
    }
  }
  if (size == 0) {
    errno = 0;
    return Received::closed;
  }
  end_ += static_cast<std::size_t>(size);
  return Received::some;
}

std::optional<std::uint32_t> FrameReader::preface() {
  // A server that says something else may say no more than that, so the first bytes have to do.
  Bytes ours;
  wire::encode_preface(ours);
  const BytesView magic = BytesView(ours).first(std::min<std::size_t>(unread().size(), 4));
  if (!std::ranges::equal(magic, unread().first(magic.size()))) {
    throw Error(Errc::unreachable, "what answers there is not dlaunch (it says " +
                                       printable(unread()) + "); is the port right?");
  }
  if (unread().size() < wire::preface_bytes) return std::nullopt;
  const auto version = wire::decode_preface(unread());
  begin_ += wire::preface_bytes;
  return version;
}

std::optional<FrameReader::Frame> FrameReader::next() {
  if (unread().size() < wire::header_bytes) return std::nullopt;
  Frame frame;
  frame.header = wire::decode_header(unread());
  if (frame.header.length > wire::frame_bytes_max) {
    throw Error(Errc::version, "a message of " + std::to_string(frame.header.length) +
                                   " bytes came, which cannot be");
  }
  if (unread().size() - wire::header_bytes < frame.header.length) return std::nullopt;
  frame.payload = unread().subspan(wire::header_bytes, frame.header.length);
  // The kernel hands descriptors over no later than the first byte of their frame.
  while (frame.descriptors.size() < frame.header.descriptors() && !descriptors_.empty()) {
    frame.descriptors.push_back(std::move(descriptors_.front()));
    descriptors_.pop_front();
  }
  begin_ += wire::header_bytes + frame.header.length;
  return frame;
}

}  // namespace dlaunch::store
