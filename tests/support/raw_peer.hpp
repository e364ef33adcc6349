#pragma once

#include "tests/support/store_server.hpp"

#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>
#include <poll.h>

namespace dlaunch::test {

/// A connection that says what it likes.
class RawPeer {
 public:
  explicit RawPeer(unique_fd connected) : fd_(std::move(connected)) {}

  void say(BytesView bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return;  // The server has closed already, which is what is tested.
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  void say(std::string_view text) { say(as_bytes(text)); }
  void say_hello(std::uint64_t session = 0, std::string job = {}) {
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = session;
    hello.job = std::move(job);
    wire::encode_frame(out, {}, hello);
    say(out);
  }
  void greet(std::uint64_t session = 0, std::string job = {}) {
    say_hello(session, std::move(job));
    CHECK(read(wire::preface_bytes).size() == wire::preface_bytes);
    CHECK(frame().first.type == wire::Type::welcome);
  }
  template <class Message>
  void ask(std::uint64_t request, const Message& message, std::uint64_t epoch = 0) {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, request, epoch}, message);
    say(out);
  }
  std::pair<wire::FrameHeader, Bytes> frame() {
    const Bytes head = read(wire::header_bytes);
    if (head.size() < wire::header_bytes) return {};
    const auto header = wire::decode_header(head);
    return {header, read(header.length)};
  }
  template <class Message>
  Message answer(std::uint64_t request) {
    const auto [header, payload] = frame();
    CHECK(header.type == Message::type);
    CHECK(header.request == request);
    return wire::decode<Message>(payload).value_or(Message{});
  }
  /// Less when the server closes or 20 s pass.
  Bytes read(std::size_t size) {
    Bytes bytes(size);
    std::size_t have = 0;
    while (have < size) {
      if (!readable()) break;
      const ssize_t n = ::recv(fd_.get(), bytes.data() + have, size - have, 0);
      if (n <= 0) break;
      have += static_cast<std::size_t>(n);
    }
    bytes.resize(have);
    return bytes;
  }
  bool closed_by_server() {
    Bytes unread(64u << 10);
    while (readable()) {
      if (::recv(fd_.get(), unread.data(), unread.size(), 0) <= 0) return true;
    }
    return false;
  }
  int fd() const { return fd_.get(); }
  void hang_up() { fd_.reset(); }

 private:
  bool readable() {
    pollfd wait{fd_.get(), POLLIN, 0};
    return ::poll(&wait, 1, poll_timeout_ms(soon())) > 0;
  }
  unique_fd fd_;
};

}  // namespace dlaunch::test
