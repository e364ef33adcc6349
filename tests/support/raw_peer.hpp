#pragma once

#include "runtime/store/tls/tls.hpp"
#include "tests/support/store_server.hpp"

#include <algorithm>
#include <memory>
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

  /// Goes on over TLS, with this key, which is the right one. False where the other end does not.
  bool prove(const std::string& job, const Key& key) {
    auto channel = store::connect_tls(job, key);
    Bytes flight;
    channel->feed({}, plain_, flight);
    say(flight);
    while (!channel->established()) {
      Bytes answer(TlsChannel::handshake_bytes_max);
      if (!readable()) return false;
      const ssize_t n = ::recv(fd_.get(), answer.data(), answer.size(), 0);
      if (n <= 0) return false;
      flight.clear();
      const auto heard = BytesView(answer).first(static_cast<std::size_t>(n));
      const auto fed = channel->feed(heard, plain_, flight);
      INFO(channel->reason());
      CHECK(channel->trouble() != TlsChannel::Trouble::unproven);
      if (fed != TlsChannel::Fed::open) return false;
      say(flight);
    }
    channel_ = std::move(channel);
    return true;
  }

  void say(BytesView bytes) {
    Bytes sealed;
    if (channel_) {
      if (!channel_->seal(bytes, sealed)) return;  // It is over, as below.
      bytes = sealed;
    }
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
    if (channel_) return read_sealed(size);
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
  Bytes read_sealed(std::size_t size) {
    while (plain_.size() < size && readable()) {
      Bytes in(size + wire::header_bytes), out;
      const ssize_t n = ::recv(fd_.get(), in.data(), in.size(), 0);
      if (n <= 0) break;
      const auto heard = BytesView(in).first(static_cast<std::size_t>(n));
      if (channel_->feed(heard, plain_, out) != TlsChannel::Fed::open) break;
    }
    const auto have = plain_.begin() + static_cast<std::ptrdiff_t>(std::min(size, plain_.size()));
    Bytes bytes(plain_.begin(), have);
    plain_.erase(plain_.begin(), have);
    return bytes;
  }
  bool readable() {
    pollfd wait{fd_.get(), POLLIN, 0};
    return ::poll(&wait, 1, poll_timeout_ms(soon())) > 0;
  }
  unique_fd fd_;
  std::unique_ptr<TlsChannel> channel_;  ///< Null: in the clear.
  Bytes plain_;                          ///< What came over it, and was not read.
};

}  // namespace dlaunch::test
