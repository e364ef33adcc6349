#include "launcher/hang/nccl_ras.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/text/values.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <string_view>
#include <variant>

#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::launcher {
namespace {

constexpr std::size_t answer_bytes_max = 64u << 10;
constexpr std::string_view question = "verbose status\n";

/// The text made safe for a terminal, since any program may listen at that port.
std::string shown(std::string_view said) {
  std::string text;
  for (const char c : said) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\r') continue;
    text += c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7f) ? c : '?';
  }
  return text;
}

RasAnswer read_answer(const unique_fd& fd, Clock::time_point deadline) {
  RasAnswer answer;
  std::string said;
  std::array<char, 4096> block;
  for (;;) {
    if (said.size() >= answer_bytes_max) {
      answer.problem = "only its first 64 KiB are shown";
      break;
    }
    pollfd wait{fd.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, poll_timeout_ms(deadline));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      answer.problem = said.empty() ? "it does not answer in time" : "it did not end in time";
      break;
    }
    const auto size = ::recv(fd.get(), block.data(), block.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (size <= 0) break;
    said.append(block.data(), static_cast<std::size_t>(size));
  }
  if (said.empty() && answer.problem.empty()) answer.problem = "it says nothing";
  answer.text = shown(said);
  return answer;
}

}  // namespace

std::optional<RasAnswer> ask_ras(const std::string& address, Clock::time_point deadline) try {
  const auto read = read_endpoint(address);
  const auto* place = std::get_if<EndpointAsked>(&read);
  if (place == nullptr || !place->port) {
    return RasAnswer{{}, "NCCL_RAS_ADDR is no address and port: " + address};
  }
  for (const Address& at : resolve(place->host, *place->port)) {
    unique_fd fd;
    try {
      fd = connect_tcp(at, deadline);
    } catch (const Error&) {
      continue;  // It listens on one of localhost's addresses alone, or on none.
    }
    if (::send(fd.get(), question.data(), question.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(question.size())) {
      return RasAnswer{{}, errno_text(errno)};
    }
    return read_answer(fd, deadline);
  }
  return std::nullopt;
} catch (const Error& error) {
  return RasAnswer{{}, error.what()};
}

}  // namespace dlaunch::launcher
