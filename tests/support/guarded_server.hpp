#pragma once

#include "tests/support/expect.hpp"
#include "tests/support/store_server.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>

/// A server that asks for the job's secret, and what its tests say to it.
namespace dlaunch::test {

inline constexpr const char* our_secret =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
inline constexpr const char* their_secret =
    "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

inline Key key(const std::string& job, const char* secret = our_secret) {
  return Secret::parse(as_bytes(secret), "the test").job_key(job);
}

/// Asks everyone for the secret, those on loopback as well unless told otherwise.
class GuardedServer : public ServerThread {
 public:
  explicit GuardedServer(bool trust_loopback = false) {
    on_loop([&](store::Server& server) {
      server.ask_for(
          {.keys = {{.key_of = [](std::string_view job) { return key(std::string(job)); }}},
           .trust_loopback = trust_loopback});
      server.on_unproven(
          [this](store::RefusalKind, const std::string& line) { log_.push_back(line); });
      return 0;
    });
  }
  /// Before log_ goes.
  ~GuardedServer() {
    on_loop([](store::Server& server) {
      server.stop();
      return 0;
    });
  }
  static store::Client::Options with(std::string job, std::optional<Key> proof) {
    auto result = options(0);
    result.hello.job = std::move(job);
    result.key = std::move(proof);
    return result;
  }
  store::Client client_with(std::string job, std::optional<Key> proof) {
    return {connect(), with(std::move(job), std::move(proof)), nullptr, soon()};
  }
  std::pair<Errc, std::string> refusal(std::string job, std::optional<Key> proof) {
    return failure([&] { client_with(std::move(job), std::move(proof)); });
  }
  std::vector<std::string> log() {
    return on_loop([&](store::Server&) { return log_; });
  }
  bool unauthenticated(std::uint64_t times) {
    return count([&](const store::Counters& c) { return c.unauthenticated == times; });
  }

 private:
  std::vector<std::string> log_;
};

inline void say(const unique_fd& to, BytesView bytes) {
  CHECK(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(bytes.size()));
}
/// Everything until the other side closes; nullopt when it has not within 20 s.
inline std::optional<Bytes> all_of(const unique_fd& from) {
  Bytes heard;
  std::array<std::byte, 4096> part{};
  for (;;) {
    pollfd ready{from.get(), POLLIN, 0};
    if (::poll(&ready, 1, poll_timeout_ms(soon())) <= 0) return std::nullopt;
    const ssize_t n = ::recv(from.get(), part.data(), part.size(), 0);
    if (n <= 0) return heard;
    heard.insert(heard.end(), part.begin(), part.begin() + n);
  }
}

inline Bytes hello_of(const std::string& job) {
  Bytes out;
  wire::encode_preface(out);
  wire::Hello hello;
  hello.job = job;
  wire::encode_frame(out, {}, hello);
  return out;
}
inline Bytes get_frame(std::string_view name) {
  Bytes out;
  wire::encode_frame(out, {0, {}, 0, 1, 0}, wire::Get{name});
  return out;
}

/// The client's handshake; what comes behind it is appended to `plain`.
inline void shake_hands(TlsChannel& tls, const unique_fd& socket, Bytes& plain) {
  std::array<std::byte, TlsChannel::handshake_bytes_max> read{};
  for (ssize_t size = 0; size >= 0;) {
    Bytes out;
    CHECK(tls.feed(BytesView(read).first(static_cast<std::size_t>(size)), plain, out) ==
          TlsChannel::Fed::open);
    say(socket, out);
    if (tls.established()) return;
    size = ::recv(socket.get(), read.data(), read.size(), 0);
    REQUIRE(size > 0);
  }
}

}  // namespace dlaunch::test
