#include "rendezvous/state/etcd/gateway.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <poll.h>
#include <sys/socket.h>

namespace dlaunch::rendezvous::etcd {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;

/// If a member takes longer than this, the next one is asked.
constexpr auto patience = std::chrono::milliseconds(1000);
/// The pause after all members have been tried.
constexpr auto pause = std::chrono::milliseconds(50);
/// More than a page of rows ever takes.
constexpr std::size_t reply_bytes_max = 256u << 20;

Failure unreachable(const std::string& why) { return {Failure::Kind::unreachable, why}; }

void await(int fd, short events, Clock::time_point deadline) {
  pollfd waited{fd, events, 0};
  for (;;) {
    const int ready = ::poll(&waited, 1, poll_timeout_ms(deadline));
    if (ready > 0) return;
    if (ready == 0) throw unreachable("no answer in time");
    if (errno != EINTR) throw unreachable(errno_text(errno));
  }
}

/// The other side may have closed an idle connection.
bool is_usable(int fd) {
  char byte = 0;
  const ssize_t n = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace

Json Gateway::ask(std::string_view path, const Json& body, Clock::time_point deadline) {
  const std::string text = body.dump();
  std::string why = "no answer in time";
  for (std::size_t tries = 0;; ++tries) {
    if (tries > 0) {
      socket_.reset();
      current_ = (current_ + 1) % servers_.size();
      const auto resume = Clock::now() + (tries % servers_.size() == 0 ? pause : pause / 10);
      if (resume >= deadline) throw unreachable(why);
      ::poll(nullptr, 0, poll_timeout_ms(resume));
    }
    try {
      const auto reply = post(path, text, std::min(deadline, Clock::now() + patience));
      if (!reply.keeps) socket_.reset();
      return answer_in(reply.status, reply.body);
    } catch (const Failure& failure) {
      if (failure.kind() != Failure::Kind::unreachable) throw;
      why = member() + ": " + failure.what();
    } catch (const Error& error) {
      why = error.what();
    }
  }
}

std::string Gateway::member() const {
  const auto& server = servers_[current_];
  return host_port(server.host, server.port);
}

Gateway::Reply Gateway::post(std::string_view path, const std::string& body,
                             Clock::time_point deadline) {
  if (socket_ && !is_usable(socket_.get())) socket_.reset();
  if (!socket_) connect(deadline);
  send("POST /v3" + std::string(path) + " HTTP/1.1\r\nHost: " + member() +
           "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\n\r\n" + body,
       deadline);
  return receive(deadline);
}

void Gateway::connect(Clock::time_point deadline) {
  const auto& server = servers_[current_];
  const auto addresses = resolve(server.host, server.port);
  for (std::size_t i = 0;; ++i) {
    try {
      socket_ = connect_tcp(addresses[i], deadline);
      set_nonblocking(socket_.get(), true);
      return;
    } catch (const Error&) {
      if (i + 1 == addresses.size()) throw;
    }
  }
}

void Gateway::send(std::string_view text, Clock::time_point deadline) const {
  while (!text.empty()) {
    const ssize_t n = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      await(socket_.get(), POLLOUT, deadline);
    } else if (errno != EINTR) {
      throw unreachable(errno_text(errno));
    }
  }
}

Gateway::Reply Gateway::receive(Clock::time_point deadline) const {
  http::response_parser<http::string_body> parser;
  parser.body_limit(reply_bytes_max);
  parser.eager(true);
  beast::flat_buffer buffer;
  while (!parser.is_done()) {
    await(socket_.get(), POLLIN, deadline);
    constexpr std::size_t piece = 64u << 10;
    const auto room = buffer.prepare(piece);
    const ssize_t n = ::recv(socket_.get(), room.data(), room.size(), 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) throw unreachable(errno_text(errno));
    beast::error_code error;
    if (n == 0) {
      parser.put_eof(error);
      if (error || !parser.is_done()) throw unreachable("the connection broke");
      break;
    }
    buffer.commit(static_cast<std::size_t>(n));
    while (buffer.size() > 0 && !parser.is_done()) {
      const std::size_t read = parser.put(buffer.data(), error);
      buffer.consume(read);
      if (error == http::error::need_more) break;
      if (error) throw unreachable("an answer that is no HTTP: " + error.message());
    }
  }
  return {parser.get().result_int(), std::move(parser.get().body()),
          parser.keep_alive() && buffer.size() == 0};
}

}  // namespace dlaunch::rendezvous::etcd
