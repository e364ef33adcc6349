#include "runtime/store/server/connection.hpp"

#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sys/socket.h>
#include <sys/uio.h>

namespace dlaunch::store {
namespace {

/// The most spare buffers, for a wake-up of many connections; large buffers are kept only among the
/// first few.
constexpr std::size_t spare_buffers_max = 256;
constexpr std::size_t large_buffers_max = 16;
constexpr std::size_t large_bytes = 4u << 10;
constexpr std::size_t spare_bytes_max = 256u << 10;
constexpr std::size_t chunks_per_send = 16;
constexpr std::size_t descriptors_max = 8;
/// The most ciphertext that is made before some of it is sent; larger buffers are not kept.
constexpr std::size_t sealed_bytes_max = 256u << 10;
constexpr std::size_t sealed_bytes_kept = 4u << 10;

}  // namespace

void Connection::dirty() noexcept {
  if (dirty_) return;
  dirty_ = true;
  owner_.on_dirty(*this);
}

Connection::Chunk& Connection::begin_chunk() {
  queued_ += tail_bytes();
  return chunks_.emplace_back();
}

/// The last chunk, to append to; a new one if it is partly sent, so that a chunk under a slow send
/// does not grow.
Bytes& Connection::buffer() {
  dirty();
  write_late();
  const std::size_t queued = queued_ + tail_bytes();
  if (queued - shared_ > charge.bytes() + little_bytes) count_held();
  if (queued > held_bytes_max) overrun_ = true;
  if (overrun_ || greedy_) {
    lost_.clear();
    return lost_;
  }
  const bool usable = !chunks_.empty() && !chunks_.back().shared &&
                      chunks_.back().descriptors.empty() && (chunks_.size() > 1 || sent_ == 0);
  if (usable) return chunks_.back().own;
  Bytes& own = begin_chunk().own;
  auto& spare = owner_.spare_buffers();
  if (!spare.empty()) {
    own = std::move(spare.back());
    spare.pop_back();
  }
  return own;
}

void Connection::share(std::shared_ptr<const Bytes> block) {
  dirty();
  write_late();
  if (overrun_ || greedy_) return;
  shared_ += block->size();
  begin_chunk().shared = std::move(block);
}

void Connection::say_late(std::shared_ptr<const LateMessage> message) {
  dirty();
  late_.push_back(std::move(message));
}

void Connection::write_late() {
  if (late_.empty()) return;
  auto messages = std::exchange(late_, {});
  Bytes& out = buffer();
  for (const auto& message : messages) {
    const std::size_t at = out.size();
    wire::FrameHeader header{0, message->type(), 0, 0, 0};
    wire::encode_header(out, header);
    message->encode(out);
    header.length = static_cast<std::uint32_t>(out.size() - at - wire::header_bytes);
    std::memcpy(out.data() + at, &header, wire::header_bytes);
  }
  messages.clear();
  late_ = std::move(messages);  // Its memory is used again.
}

void Connection::send_with(Bytes frame, std::vector<unique_fd> descriptors) {
  dirty();
  write_late();
  Chunk& chunk = begin_chunk();
  chunk.own = std::move(frame);
  chunk.descriptors = std::move(descriptors);
}

Bytes& Connection::ahead() {
  dirty();
  if (!overrun_ && !greedy_) return ahead_;
  lost_.clear();
  return lost_;
}

void Connection::close() {
  dirty();
  closing_ = true;
}

void Connection::hold(std::uint64_t change, std::uint64_t durable) {
  mute_ = change > 0 && durable == 0;
  while (!holds_.empty() && holds_.front().change <= durable) {
    released_ = holds_.front().end;
    holds_.pop_front();
  }
  if (change <= durable) return;  // Then nothing has to wait.
  const std::uint64_t end = gone_ + left_bytes();
  if (holds_.empty()) {
    released_ = std::max(released_, gone_);
    if (end > released_) holds_.push_back({change, end});
  } else if (holds_.back().change == change) {
    holds_.back().end = end;
  } else if (end > holds_.back().end) {
    holds_.push_back({change, end});
  }
}

std::size_t Connection::sendable() const {
  return holds_.empty() ? left_bytes() : static_cast<std::size_t>(released_ - gone_);
}

void Connection::discard() noexcept {
  gone_ += left_bytes();
  late_.clear();
  holds_.clear();
  chunks_.clear();
  sealed_.clear();
  ahead_.clear();
  queued_ = sent_ = sealed_sent_ = shared_ = ahead_sent_ = 0;
  dirty_ = false;
}

bool Connection::overfull(std::size_t bytes_max) const {
  if (chunks_.size() < 2) return false;
  return queued_ + tail_bytes() - chunks_.front().bytes().size() > bytes_max;
}

std::size_t Connection::held_bytes() const {
  return sizeof(Connection) + queued_ + tail_bytes() - shared_ + ahead_.size() +
         sealed_.capacity() + (session ? session->unread_bytes() : 0);
}

bool Connection::count_held() {
  const std::size_t before = charge.bytes(), bytes = held_bytes();
  charge.set(bytes);
  if (bytes > before && bytes >= little_bytes && !charge.has_room()) greedy_ = true;
  return !greedy_;
}

void Connection::recycle(Bytes& buffer) {
  auto& spare = owner_.spare_buffers();
  if (buffer.capacity() == 0 || buffer.capacity() > spare_bytes_max) return;
  const bool large = buffer.capacity() > large_bytes;
  if (spare.size() >= (large ? large_buffers_max : spare_buffers_max)) return;
  buffer.clear();
  spare.push_back(std::move(buffer));
}

void Connection::sent(std::size_t bytes) {
  sent_ += bytes;
  gone_ += bytes;
  while (!chunks_.empty() && sent_ >= chunks_.front().bytes().size()) {
    const std::size_t size = chunks_.front().bytes().size();
    sent_ -= size;
    if (chunks_.size() > 1) queued_ -= size;
    if (chunks_.front().shared) shared_ -= size;
    recycle(chunks_.front().own);
    chunks_.pop_front();
  }
}

/// Most connections have one chunk to send, for which, without descriptors, the simpler call is
/// enough.
ssize_t Connection::send_one() {
  const BytesView left = chunks_.front().bytes().subspan(sent_, sendable());
  return ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// `total` becomes the size of what was tried.
ssize_t Connection::send_many(std::size_t& total) {
  std::array<iovec, chunks_per_send> parts{};
  std::size_t count = 0;
  for (const Chunk& chunk : chunks_) {
    // A frame with descriptors begins a message of its own: they arrive with its first byte.
    if (count == parts.size() || (count > 0 && !chunk.descriptors.empty())) break;
    const BytesView rest = chunk.bytes().subspan(count == 0 ? sent_ : 0);
    const BytesView left = rest.first(std::min(rest.size(), sendable() - total));
    if (left.empty() && count > 0) break;
    parts[count++] = {const_cast<std::byte*>(left.data()), left.size()};
    total += left.size();
    if (!chunk.descriptors.empty()) break;
  }
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = count;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(descriptors_max * sizeof(int))> control{};
  auto& descriptors = chunks_.front().descriptors;
  if (!descriptors.empty()) {
    std::array<int, descriptors_max> numbers{};
    const std::size_t n = std::min(descriptors.size(), descriptors_max);
    std::transform(descriptors.begin(), descriptors.begin() + static_cast<std::ptrdiff_t>(n),
                   numbers.begin(), [](const unique_fd& fd) { return fd.get(); });
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(n * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(n * sizeof(int));
    std::memcpy(CMSG_DATA(header), numbers.data(), n * sizeof(int));
  }
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

TlsChannel::Fed Connection::unseal(BytesView in, Bytes& plain) {
  const std::size_t before = sealed_.size();
  const auto fed = tls_->feed(in, plain, sealed_);
  if (sealed_.size() != before) dirty();
  return fed;
}

/// Encrypts queued bytes; false when TLS has failed. Descriptors cannot travel this way, but only
/// unix sockets have any.
bool Connection::seal_some() {
  while (sendable() > 0 && sealed_.size() < sealed_bytes_max) {
    const BytesView left = chunks_.front().bytes().subspan(sent_);
    const BytesView part = left.first(std::min({left.size(), sealed_bytes_max, sendable()}));
    if (!tls_->seal(part, sealed_)) return false;
    sent(part.size());
  }
  return true;
}

Connection::Flushed Connection::flush_sealed() {
  for (;;) {
    if (tls_->established() && !seal_some()) return Flushed::broken;
    if (tls_->established() && may_send_ahead()) {
      if (!tls_->seal(ahead_, sealed_)) return Flushed::broken;
      ahead_.clear();
    }
    if (sealed_sent_ == sealed_.size()) return flushed();
    const BytesView left = BytesView(sealed_).subspan(sealed_sent_);
    const ssize_t n = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return would_block(errno) ? Flushed::blocked : Flushed::broken;
    sealed_sent_ += static_cast<std::size_t>(n);
    if (sealed_sent_ < sealed_.size()) return Flushed::blocked;
    sealed_sent_ = 0;
    if (sealed_.capacity() > sealed_bytes_kept) Bytes().swap(sealed_);
    sealed_.clear();
  }
}

/// What waits begins with a frame, so one may be put before it.
bool Connection::may_send_ahead() const { return !mute_ && !ahead_.empty() && sendable() == 0; }

Connection::Flushed Connection::flush_ahead() {
  while (ahead_sent_ < ahead_.size()) {
    const BytesView left = BytesView(ahead_).subspan(ahead_sent_);
    const ssize_t n = ::send(socket.get(), left.data(), left.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return would_block(errno) ? Flushed::blocked : Flushed::broken;
    ahead_sent_ += static_cast<std::size_t>(n);
  }
  ahead_.clear();
  ahead_sent_ = 0;
  return Flushed::all;
}

Connection::Flushed Connection::flush() {
  dirty_ = false;
  if (tls_) return flush_sealed();
  if (ahead_sent_ > 0) {
    if (const auto begun = flush_ahead(); begun != Flushed::all) return begun;
  }
  while (sendable() > 0) {
    const bool alone = chunks_.size() == 1 && chunks_.front().descriptors.empty();
    std::size_t total = alone ? sendable() : 0;
    const ssize_t n = alone ? send_one() : send_many(total);
    if (n < 0) {
      if (errno == EINTR) continue;
      return would_block(errno) ? Flushed::blocked : Flushed::broken;
    }
    // The descriptors have left, even if the rest of the frame has not.
    chunks_.front().descriptors.clear();
    sent(static_cast<std::size_t>(n));
    if (static_cast<std::size_t>(n) < total) return Flushed::blocked;
  }
  if (may_send_ahead()) {
    if (const auto passed = flush_ahead(); passed != Flushed::all) return passed;
  }
  return flushed();
}

}  // namespace dlaunch::store
