#include "launcher/subcommands/daemon_http.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"

#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::launcher {
namespace {

/// The longest answer; a job of 20,000 nodes takes 4 MiB.
constexpr std::size_t answer_bytes_max = 64u << 20;

/// The first address of the name at which somebody listens.
unique_fd connected(const std::string& host, std::uint16_t port, Clock::time_point deadline) {
  const auto addresses = resolve(host, port);
  for (std::size_t i = 0;; ++i) {
    try {
      return connect_tcp(addresses.at(i), deadline);
    } catch (const Error&) {
      if (i + 1 == addresses.size()) throw;
    }
  }
}

void await(int fd, short what, const std::string& peer, Clock::time_point deadline) {
  pollfd ready{fd, what, 0};
  for (;;) {
    const int count = ::poll(&ready, 1, poll_timeout_ms(deadline));
    if (count > 0) return;
    if (count == 0) throw Error(Errc::timeout, peer + " does not answer in time");
    if (errno != EINTR) throw Error(Errc::internal, "poll: " + errno_text(errno));
  }
}

void send_all(int fd, std::string_view text, const std::string& peer, Clock::time_point deadline) {
  while (!text.empty()) {
    await(fd, POLLOUT, peer, deadline);
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw Error(Errc::unreachable, peer + " has hung up: " + errno_text(errno));
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

std::string read_to_end(int fd, const std::string& peer, Clock::time_point deadline) {
  std::string answer;
  std::array<char, 64u << 10> piece{};
  for (;;) {
    await(fd, POLLIN, peer, deadline);
    const ssize_t n = ::recv(fd, piece.data(), piece.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw Error(Errc::unreachable, peer + " has hung up: " + errno_text(errno));
    if (n == 0) return answer;
    answer.append(piece.data(), static_cast<std::size_t>(n));
    if (answer.size() > answer_bytes_max) {
      throw Error(Errc::unreachable, peer + " says too much to be a dlaunchd");
    }
  }
}

/// "HTTP/1.0 200 OK", header, an empty line, body.
std::optional<DaemonAnswer> parsed(const std::string& text) {
  constexpr std::string_view start = "HTTP/1.";
  constexpr std::string_view end_of_header = "\r\n\r\n";
  const auto body = text.find(end_of_header);
  const auto blank = text.find(' ');
  if (!text.starts_with(start) || body == std::string::npos || blank > body) return std::nullopt;
  DaemonAnswer answer;
  const char* const from = text.data() + blank + 1;
  if (std::from_chars(from, from + 3, answer.code).ptr != from + 3) return std::nullopt;
  const std::string_view header = std::string_view(text).substr(0, body);
  answer.is_text = header.find("\r\nContent-Type: text/plain") != std::string_view::npos;
  answer.body = text.substr(body + end_of_header.size());
  return answer;
}

}  // namespace

DaemonAnswer ask_daemon(const std::string& host, std::uint16_t port, const DaemonRequest& request,
                        Clock::time_point deadline) {
  const std::string peer = host_port(host, port);
  const unique_fd fd = connected(host, port, deadline);
  // HTTP/1.0: an answer ends with its connection, and is not chunked.
  std::string text = request.method + " " + request.target + " HTTP/1.0\r\nHost: " + peer + "\r\n";
  if (!request.token.empty()) text += "Authorization: Bearer " + request.token + "\r\n";
  send_all(fd.get(), text + "\r\n", peer, deadline);
  const bool acts = request.method != "GET";
  auto answer =
      parsed(read_to_end(fd.get(), acts ? peer + ", which may have done it," : peer, deadline));
  if (!answer) throw Error(Errc::unreachable, "what answers at " + peer + " does not speak HTTP");
  return *std::move(answer);
}

std::string percent_encoded(const std::string& text) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += {'%', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return encoded;
}

}  // namespace dlaunch::launcher
