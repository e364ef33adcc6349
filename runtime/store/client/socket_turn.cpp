#include "runtime/store/client/socket_turn.hpp"

#include "runtime/base/os/socket.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <sys/socket.h>
#include <sys/uio.h>

namespace dlaunch::store {
namespace {

constexpr std::size_t descriptors_per_message_max = 16;

std::vector<unique_fd> descriptors_of(msghdr& message) {
  std::vector<unique_fd> found;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      found.emplace_back(fd);
    }
  }
  return found;
}

bool is_unix(int socket) noexcept {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
         own.ss_family == AF_UNIX;
}

}  // namespace

bool receive(ClientSession& session, int socket) {
  const std::span<std::byte> room = session.room();
  iovec part{room.data(), room.size()};
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
  if (size < 0 && would_block(errno)) return false;
  if (size <= 0) {
    session.ended(size < 0 ? errno_text(errno) : std::string());
  } else {
    session.received(static_cast<std::size_t>(size), descriptors_of(message), Clock::now());
    // TLS has answered, if only to say what it did not like.
    if (session.broken()) send(session, socket);
  }
  return true;
}

Sent send(ClientSession& session, int socket) {
  for (BytesView out = session.unsent(); !out.empty(); out = session.unsent()) {
    const ssize_t n = ::send(socket, out.data(), out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return would_block(errno) ? Sent::blocked : Sent::broken;
    session.sent(static_cast<std::size_t>(n));
  }
  return Sent::all;
}

bool end_line(int socket) noexcept {
  if (is_unix(socket)) return false;
  constexpr std::string_view end = "\r\n\r\n";
  return ::send(socket, end.data(), end.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

std::string silence_question(int socket) {
  return is_unix(socket) ? "" : "; is it one, and is the port right?";
}

}  // namespace dlaunch::store
