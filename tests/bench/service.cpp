// How long N agents take to join one job at a rendezvous service, to pass a barrier of its store
// and to end, each with a connection of its own; the service is a process apart.
//
//     service N [WORKERS_PER_NODE]
#include "rendezvous/service/service.hpp"

#include "rendezvous/service/messages.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
namespace message = rendezvous::message;

/// As many connect at once as a service has about their HELLO at once.
constexpr std::size_t connecting_max = 200;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "service bench: %s\n", what.c_str());
  std::exit(1);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

[[noreturn]] void serve(unique_fd listener) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  boost::asio::io_context io(1);
  rendezvous::Service service(io, {}, [](const rendezvous::LogLine& line) {
    if (line.level != rendezvous::LogLine::Level::info) {
      std::fprintf(stderr, "%s: %s\n", line.job.c_str(), line.sentence.c_str());
    }
  });
  service.listen(std::move(listener));
  boost::asio::signal_set signals(io, SIGTERM);
  signals.async_wait([&](const boost::system::error_code&, int) {
    service.stop();
    io.stop();
  });
  io.run();
  std::exit(0);
}

class Agent {
 public:
  enum class State { welcoming, joining, meeting, ending, over };

  Agent(const Address& service, std::size_t index, int nodes, int workers)
      : fd_(connect_tcp(service, Clock::now() + std::chrono::seconds(30))),
        index_(index),
        nodes_(nodes),
        workers_(workers) {
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = index + 1;
    hello.job = "bench";
    wire::encode_frame(out, {}, hello);
    send(out);
  }
  int fd() const { return fd_.get(); }
  State state() const { return state_; }

  /// Takes what has come.
  void read(Bytes& scratch) {
    const ssize_t n = ::recv(fd_.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
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
  /// The barrier of all nodes.
  void meet() {
    Bytes out;
    wire::encode_frame(out, {0, {}, 0, 1, epoch_},
                       wire::Barrier{"init", 0, nodes_, {}, {node_rank_}});
    send(out);
  }
  void end() {
    tell(message::WorkersEnded{epoch_, {}, 0, "", {}, {}, {}});
    state_ = State::ending;
  }

 private:
  void hear(const wire::FrameHeader& header, BytesView payload) {
    if (header.type == wire::Type::welcome) {
      message::Join join;
      join.offer.id = "node-" + std::to_string(index_);
      join.offer.host = join.offer.id + ".cluster.example";
      join.offer.workers = workers_;
      join.offer.store_addresses = {"10.11.12.13:29500", "192.168.111.112:29500"};
      join.rules.nodes_min = join.rules.nodes_max = nodes_;
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
  Bytes unread_;
};

/// Reads whatever comes until so many agents are in this state or beyond.
class Crowd {
 public:
  Crowd(const Address& service, std::size_t size, int workers) : poll_(::epoll_create1(0)) {
    agents_.reserve(size);
    while (agents_.size() < size) {
      const std::size_t index = agents_.size();
      agents_.emplace_back(service, index, static_cast<int>(size), workers);
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

 private:
  unique_fd poll_;
  std::vector<Agent> agents_;
  std::array<std::size_t, 5> reached_{};
  Bytes scratch_ = Bytes(256u << 10);
};

std::size_t resident_kib(pid_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) fail("how many agents?");
  const std::size_t size = std::strtoull(argv[1], nullptr, 10);
  const int workers = argc > 2 ? std::atoi(argv[2]) : 8;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (size + 16 > files.rlim_max) fail("RLIMIT_NOFILE is " + std::to_string(files.rlim_max));

  unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address service = local_address(listener.get());
  const pid_t server = ::fork();
  if (server < 0) fail("cannot fork: " + errno_text(errno));
  if (server == 0) serve(std::move(listener));
  listener.reset();

  using Milliseconds = std::chrono::duration<double, std::milli>;
  const auto begin = Clock::now();
  const auto lap = [&] { return Milliseconds(Clock::now() - begin).count(); };
  Crowd crowd(service, size, workers);
  crowd.until(Agent::State::joining, size);
  const double welcomed = lap();
  crowd.until(Agent::State::meeting, size);
  const double admitted = lap();
  for (Agent& agent : crowd.agents()) agent.meet();
  crowd.until(Agent::State::ending, size);
  const double met = lap();
  for (Agent& agent : crowd.agents()) agent.end();
  crowd.until(Agent::State::over, size);
  const double over = lap();

  const std::size_t resident = resident_kib(server);
  ::kill(server, SIGTERM);
  rusage usage{};
  int status = 0;
  if (::wait4(server, &status, 0, &usage) != server || status != 0) fail("the service has failed");
  std::printf(
      "%zu agents: welcomed after %.0f ms, admitted %.0f ms, through the barrier %.0f ms, over "
      "%.0f "
      "ms; service: %.0f ms of CPU, %zu KiB\n",
      size, welcomed, admitted, met, over,
      1000 * (seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime)), resident);
  return 0;
}
