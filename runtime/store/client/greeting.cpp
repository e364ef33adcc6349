#include "runtime/store/client/greeting.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <cerrno>
#include <string>
#include <utility>

#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::store {
namespace {

void poll_until(int socket, short events, Clock::time_point deadline, Notice& notice,
                const std::string& what) {
  const std::string silent = "connected, but it does not answer";
  pollfd ready{socket, events, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, poll_timeout_ms(notice.before(deadline)));
    if (count > 0) return;
    if (count == 0) notice.tell(silent);
    if (Clock::now() >= deadline) throw Error(Errc::timeout, what + ": " + silent);
  }
}

/// "rank 1, joining rank 0's store at h:p".
std::string joining_text(const Client::Options& options) {
  const auto& member = options.hello.member;
  return (member ? "rank " + std::to_string(member->rank) + ", " : "") + "joining " +
         options.peer_name;
}

}  // namespace

std::unique_ptr<TlsChannel> secure(int socket, FrameReader& reader, const Client::Options& options,
                                   Clock::time_point deadline) {
  if (!options.key) return nullptr;
  auto tls = connect_tls(options.hello.job, *options.key);
  Bytes plain;
  shake_hands(*tls, socket, plain, deadline, "joining " + options.peer_name);
  reader.read_through(*tls, std::move(plain));
  return tls;
}

wire::Welcome greet(int socket, FrameReader& reader, TlsChannel* tls,
                    const Client::Options& options, Clock::time_point deadline) {
  const std::string what = joining_text(options);
  Notice notice = options.notice;
  Bytes hello;
  wire::encode_preface(hello);
  wire::encode_frame(hello, {0, wire::Type::hello, 0, 0, 0}, options.hello);
  if (tls != nullptr) {
    Bytes sealed;
    if (!tls->seal(hello, sealed)) throw error_of(*tls, what);
    hello = std::move(sealed);
  }
  for (std::size_t sent = 0; sent < hello.size();) {
    const ssize_t n =
        ::send(socket, hello.data() + sent, hello.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) sent += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
      break;  // Reading tells.
    if (n < 0) poll_until(socket, POLLOUT, deadline, notice, what);
  }
  for (bool preface = false;;) {
    try {
      if (!preface) preface = reader.preface().has_value();
    } catch (const Error& error) {
      throw Error(error.errc(), what + ": " + error.what());
    }
    if (preface) {
      if (const auto frame = reader.next()) {
        if (frame->header.type == wire::Type::welcome) {
          if (auto welcome = wire::decode<wire::Welcome>(frame->payload)) return *welcome;
        } else if (frame->header.type == wire::Type::failed) {
          if (const auto failure = wire::decode<wire::Failed>(frame->payload)) {
            throw Error(failure->code,
                        what + ": refused by " + options.peer_name + ": " + failure->sentence);
          }
        }
        throw Error(Errc::version, what + ": what answers there does not speak our protocol");
      }
    }
    poll_until(socket, POLLIN, deadline, notice, what);
    if (reader.receive(socket) == FrameReader::Received::closed) {
      throw Error(Errc::unreachable,
                  what + ": it closed the connection" +
                      (errno == 0 ? std::string(" without an answer") : ": " + errno_text(errno)));
    }
  }
}

}  // namespace dlaunch::store
