// What it takes at least to serve the agents of tests/bench/service.cpp: one loop that accepts,
// reads and answers with bytes that were made before, and decides nothing.
//
//     service FLOOR N WORKERS N
//
// service starts it as it starts dlaunchd, and the last word is how many agents come.
#include "tests/bench/crowd.hpp"

#include <csignal>
#include <vector>

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace {

using namespace dlaunch;
using namespace dlaunch::bench;

template <class Message>
Bytes frame_of(const Message& what) {
  Bytes payload, out;
  message::encode(payload, what);
  wire::encode_frame(out, {0, Message::type, 0, 0, 0}, payload);
  return out;
}

class Floor {
 public:
  explicit Floor(std::size_t agents) : count_(agents), heard_(agents) {
    wire::encode_preface(welcome_);
    wire::Welcome welcome;
    welcome.job = "bench";
    wire::encode_frame(welcome_, {}, welcome);
    admitted_.resize(agents);
    for (std::size_t i = 0; i < agents; ++i) {
      message::Admitted admitted;
      admitted.admission.epoch = 1;
      admitted.admission.node_rank = static_cast<int>(i);
      admitted_[i] = frame_of(admitted);
    }
    wire::encode_frame(done_, {0, wire::Type::done, 0, 1, 1}, BytesView());
    finished_ = frame_of(message::Finished{});
  }

  void run() {
    unique_fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    if (::bind(listener.get(), address, size) != 0 || ::listen(listener.get(), 4096) != 0 ||
        ::getsockname(listener.get(), address, &size) != 0) {
      fail("cannot listen");
    }
    const int port = ntohs(at.sin_port);
    std::fprintf(stderr, "ready listen=127.0.0.1:%d http=127.0.0.1:%d\n", port, port);
    watch(listener.get(), listening);
    for (;;) {
      std::array<epoll_event, 8192> events;
      const int ready = ::epoll_wait(poll_.get(), events.data(), events.size(), -1);
      for (int i = 0; i < ready; ++i) {
        const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
        who == listening ? accept_all(listener.get()) : hear(who);
      }
    }
  }

 private:
  static constexpr std::uint64_t listening = ~std::uint64_t{0};

  void watch(int fd, std::uint64_t who) {
    epoll_event event{EPOLLIN | EPOLLET, {.u64 = who}};
    if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
  }
  void accept_all(int listener) {
    for (;;) {
      const int fd = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      sockets_.emplace_back(fd);
      watch(fd, sockets_.size() - 1);
    }
  }
  /// Each message is one, and asks for the next step: agents wait for their answers.
  void hear(std::uint64_t who) {
    while (::recv(sockets_[who].get(), scratch_.data(), scratch_.size(), 0) > 0) {
      switch (heard_[who]++) {
        case 0:
          say(who, welcome_);
          break;
        case 1:
          meet(joined_, [this](std::size_t each) -> const Bytes& { return admitted_[each]; });
          break;
        case 2:
          meet(met_, [this](std::size_t) -> const Bytes& { return done_; });
          break;
        default:
          meet(ended_, [this](std::size_t) -> const Bytes& { return finished_; });
      }
    }
  }
  template <class Answer>
  void meet(std::size_t& here, Answer answer) {
    if (++here < count_) return;
    for (std::size_t each = 0; each < count_; ++each) say(each, answer(each));
  }
  void say(std::size_t who, const Bytes& what) {
    const auto sent = ::send(sockets_[who].get(), what.data(), what.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(what.size())) fail("an answer does not leave");
  }

  std::size_t count_;
  unique_fd poll_{::epoll_create1(EPOLL_CLOEXEC)};
  std::vector<unique_fd> sockets_;
  std::vector<int> heard_;
  std::size_t joined_ = 0, met_ = 0, ended_ = 0;
  Bytes welcome_, done_, finished_;
  std::vector<Bytes> admitted_;
  Bytes scratch_ = Bytes(64u << 10);
};

}  // namespace

int main(int argc, char** argv) {
  const std::size_t agents = argc > 5 ? std::strtoull(argv[5], nullptr, 10) : 0;
  if (agents == 0) fail("service FLOOR N WORKERS N");
  allow_agents(agents);
  ::signal(SIGTERM, [](int) { std::_Exit(0); });
  Floor(agents).run();
}
