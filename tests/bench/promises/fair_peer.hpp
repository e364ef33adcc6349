#pragma once

#include "rendezvous/service/messages.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/protocol/wire.hpp"
#include "tests/bench/own_host.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace dlaunch::bench {

namespace message = rendezvous::message;

/// A connection to the daemon; blocking, with a limit on every wait.
class Peer {
 public:
  Peer(const Address& daemon, const std::string& job, std::uint64_t session)
      : fd_(connect_tcp(daemon, Clock::now() + std::chrono::seconds(30))),
        job_(job),
        session_(session) {
    set_nonblocking(fd_.get(), false);
    const timeval limit{120, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int one = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = session;
    hello.job = job;
    wire::encode_frame(out, {}, hello);
    send(out);
  }
  /// Has become the only node of its job.
  void join() {
    welcome();
    say_join(1);
    await_epoch();
  }
  void welcome() {
    read(wire::preface_bytes);
    await(wire::Type::welcome);
  }
  void say_join(int nodes) {
    message::Join join;
    join.offer.id = join.offer.host = "node-" + std::to_string(session_) + "-of-" + job_;
    join.offer.workers = 8;
    join.offer.share = own_host(session_);
    join.offer.store_addresses = {"10.11.12.13:29500", "192.168.111.112:29500"};
    join.rules.nodes_min = join.rules.nodes_max = nodes;
    join.rules.join_timeout = std::chrono::minutes(10);
    join.rules.max_restarts = 1'000'000;
    join.rules.restart_backoff = {};
    join.version = "bench";
    // Nobody sends heartbeats while the daemon works off what is measured.
    join.rules.liveness.lease = std::chrono::minutes(10);
    tell(join);
  }
  /// The next one to which it is admitted.
  void await_epoch() {
    const auto admitted = message::decode<message::Admitted>(await(message::Admitted::type));
    if (!admitted) throw std::runtime_error("an admission cannot be read");
    epoch_ = admitted->admission.epoch;
  }
  /// Its workers have failed.
  void say_failed() {
    tell(message::WorkersEnded{
        epoch_, rendezvous::WorkersEnded::Outcome::failed, 1, "it failed", {}, {}, {}});
  }
  template <class Message>
  void append(Bytes& out, const Message& what) {
    wire::encode_frame(out, {0, Message::type, 0, ++request_, 0}, what);
  }
  /// Requests without a wait for their answers.
  void send(BytesView bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("the daemon has closed a connection");
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  /// Says the bytes over and over, as far as the daemon takes them, and forgets the answers.
  void push(BytesView bytes) {
    std::array<std::byte, 4096> some;
    while (::recv(fd_.get(), some.data(), some.size(), MSG_DONTWAIT) > 0) continue;
    const BytesView rest = bytes.subspan(pushed_);
    const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) throw std::runtime_error("the daemon has closed a connection");
    if (n > 0) pushed_ = (pushed_ + static_cast<std::size_t>(n)) % bytes.size();
  }
  /// As push, and reads nothing.
  void stuff(BytesView bytes) {
    const BytesView rest = bytes.subspan(pushed_);
    const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) pushed_ = (pushed_ + static_cast<std::size_t>(n)) % bytes.size();
  }
  /// The kernel keeps little for it.
  void read_little() {
    const int bytes = 4096;
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
  }
  /// Takes so many answers; each is one frame.
  void take(std::size_t answers) {
    while (answers > 0) {
      const auto header = wire::decode_header(read(wire::header_bytes));
      read(header.length);
      if (header.request == 0) continue;
      --answers;
      refused_ = header.type == wire::Type::failed;
    }
  }
  template <class Message>
  void ask(const Message& what) {
    Bytes out;
    append(out, what);
    send(out);
    take(1);
  }
  /// Whether the last answer was a refusal.
  bool refused() const { return refused_; }

 private:
  template <class Message>
  void tell(const Message& what) {
    Bytes payload, out;
    message::encode(payload, what);
    wire::encode_frame(out, {0, Message::type, 0, 0, 0}, payload);
    send(out);
  }
  BytesView await(wire::Type type) {
    for (;;) {
      const auto header = wire::decode_header(read(wire::header_bytes));
      const BytesView payload = read(header.length);
      if (header.type == type) return payload;
      if (header.type == wire::Type::failed || header.type == message::Refused::type) {
        throw std::runtime_error("the daemon refuses " + job_);
      }
    }
  }
  BytesView read(std::size_t size) {
    if (unread_.size() < size) unread_.resize(size);
    std::size_t got = 0;
    while (got < size) {
      const ssize_t n = ::recv(fd_.get(), unread_.data() + got, size - got, 0);
      if (n <= 0) throw std::runtime_error("the daemon does not answer, or has hung up");
      got += static_cast<std::size_t>(n);
    }
    return BytesView(unread_).first(size);
  }

  unique_fd fd_;
  std::string job_;
  std::uint64_t session_;
  std::uint64_t epoch_ = 0;
  std::uint64_t request_ = 1;
  bool refused_ = false;
  Bytes unread_;
  std::size_t pushed_ = 0;  ///< Of what is pushed now.
};

}  // namespace dlaunch::bench
