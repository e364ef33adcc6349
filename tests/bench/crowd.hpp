#pragma once

#include "rendezvous/service/messages.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "tests/bench/own_host.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

/// Many agents of one job, each a connection to a rendezvous and no process.
namespace dlaunch::bench {

namespace message = rendezvous::message;

/// As many connect at once as a service has about their HELLO at once.
constexpr std::size_t connecting_max = 200;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "crowd: %s\n", what.c_str());
  std::exit(1);
}

/// Descriptors for so many agents.
inline void allow_agents(std::size_t size) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (size + 16 > files.rlim_max) fail("RLIMIT_NOFILE is " + std::to_string(files.rlim_max));
}

class Agent {
 public:
  enum class State { welcoming, joining, meeting, ending, over };

  Agent(const Address& service, std::size_t index, int nodes, int workers, const std::string& job)
      : fd_(connect_tcp(service, Clock::now() + std::chrono::seconds(30))),
        index_(index),
        nodes_(nodes),
        workers_(workers) {
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = (std::hash<std::string>()(job) << 20) + index + 1;
    hello.job = job;
    wire::encode_frame(out, {}, hello);
    send(out);
  }
  int fd() const { return fd_.get(); }
  State state() const { return state_; }

  /// Takes what has come.
  void read(Bytes& scratch) {
    take(scratch, ::recv(fd_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT));
  }
  /// Waits for something.
  void await(Bytes& scratch) {
    take(scratch, ::recv(fd_.get(), scratch.data(), scratch.size(), 0));
  }
  /// The barrier of all nodes.
  void meet() {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, 1, epoch_},
                       wire::Barrier{"init", 0, nodes_, {}, {node_rank_}});
    send(out);
  }
  /// Says that it is there; `beats` counts the answers.
  void beat() { tell(message::Heartbeat{}); }
  std::size_t beats() const { return beats_; }
  /// What its ranks do.
  void tell_calls(std::vector<rendezvous::RankCalls> ranks) {
    tell(message::CallsNow{epoch_, std::move(ranks)});
  }
  /// Without a word.
  void hang_up() { fd_.reset(); }
  void end() {
    tell(message::WorkersEnded{epoch_, {}, 0, "", {}, {}, {}});
    state_ = State::ending;
  }

 private:
  void take(const Bytes& scratch, ssize_t n) {
    if (n <= 0) fail("the service has closed a connection");
    unread_.insert(unread_.end(), scratch.begin(), scratch.begin() + n);
    std::size_t used = state_ == State::welcoming && !opened_ ? wire::preface_bytes : 0;
    opened_ = true;
    while (unread_.size() - used >= wire::header_bytes) {
      const BytesView rest = BytesView(unread_).subspan(used);
      const auto header = wire::decode_header(rest);
      if (rest.size() - wire::header_bytes < header.length) break;
      hear(header, rest.subspan(wire::header_bytes, header.length));
      used += wire::header_bytes + header.length;
    }
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(used));
    if (unread_.empty()) Bytes().swap(unread_);
  }
  void hear(const wire::FrameHeader& header, BytesView payload) {
    if (header.type == wire::Type::welcome) {
      message::Join join;
      join.offer.id = "node-" + std::to_string(index_);
      join.offer.host = join.offer.id + ".cluster.example";
      join.offer.workers = workers_;
      join.offer.share = own_host(static_cast<std::uint64_t>(index_));
      join.offer.store_addresses = {"10.11.12.13:29500", "192.168.111.112:29500"};
      join.rules.nodes_min = join.rules.nodes_max = nodes_;
      join.rules.join_timeout = std::chrono::minutes(10);
      // What is measured takes long, and those that hang up are to be seen so.
      join.rules.liveness.lease = join.rules.liveness.reconnect_grace = std::chrono::minutes(1);
      join.version = "bench";
      tell(join);
      state_ = State::joining;
    } else if (header.type == message::Admitted::type) {
      const auto admitted = message::decode<message::Admitted>(payload);
      if (!admitted) fail("an admission cannot be read");
      epoch_ = admitted->admission.epoch;
      node_rank_ = admitted->admission.node_rank;
      state_ = State::meeting;
    } else if (header.type == wire::Type::done) {
      state_ = State::ending;
    } else if (header.type == message::Finished::type) {
      state_ = State::over;
    } else if (header.type == message::Heartbeat::type) {
      ++beats_;
    } else if (header.type != message::Standing::type) {
      fail("a message of type " + std::to_string(static_cast<int>(header.type)));
    }
  }
  template <class Message>
  void tell(const Message& what) {
    Bytes payload, out;
    message::encode(payload, what);
    wire::encode_frame(out, {0, Message::type, 0, 0, 0}, payload);
    send(out);
  }
  void send(BytesView bytes) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n != static_cast<ssize_t>(bytes.size())) fail("cannot send: " + errno_text(errno));
  }

  unique_fd fd_;
  std::size_t index_;
  int nodes_, workers_;
  State state_ = State::welcoming;
  bool opened_ = false;
  std::uint64_t epoch_ = 0;
  std::int32_t node_rank_ = 0;
  std::size_t beats_ = 0;
  Bytes unread_;
};

/// Reads whatever comes until so many agents are in this state or beyond.
class Crowd {
 public:
  Crowd(const Address& service, std::size_t size, int workers, const std::string& job = "bench")
      : poll_(::epoll_create1(0)) {
    agents_.reserve(size);
    while (agents_.size() < size) {
      const std::size_t index = agents_.size();
      agents_.emplace_back(service, index, static_cast<int>(size), workers, job);
      epoll_event event{EPOLLIN, {.u64 = index}};
      if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, agents_.back().fd(), &event) != 0) fail("epoll");
      if (agents_.size() >= connecting_max) {
        until(Agent::State::joining, agents_.size() - connecting_max);
      }
    }
  }
  void until(Agent::State state, std::size_t count) {
    while (reached_[static_cast<std::size_t>(state)] < count) {
      std::array<epoll_event, 256> events;
      const int ready = ::epoll_wait(poll_.get(), events.data(), events.size(), 60'000);
      if (ready <= 0) fail("nothing came for a minute");
      for (int i = 0; i < ready; ++i) {
        Agent& agent = agents_[events[static_cast<std::size_t>(i)].data.u64];
        const auto before = static_cast<std::size_t>(agent.state());
        agent.read(scratch_);
        const auto now = static_cast<std::size_t>(agent.state());
        for (std::size_t s = before + 1; s <= now; ++s) ++reached_[s];
      }
    }
  }
  std::vector<Agent>& agents() { return agents_; }
  /// Without waiting.
  void read_what_comes() {
    std::array<epoll_event, 256> events;
    int ready = 0;
    do {
      ready = ::epoll_wait(poll_.get(), events.data(), events.size(), 0);
      for (int i = 0; i < ready; ++i) {
        agents_[events[static_cast<std::size_t>(i)].data.u64].read(scratch_);
      }
    } while (ready > 0);
  }

 private:
  unique_fd poll_;
  std::vector<Agent> agents_;
  std::array<std::size_t, 5> reached_{};
  Bytes scratch_ = Bytes(256u << 10);
};

}  // namespace dlaunch::bench
