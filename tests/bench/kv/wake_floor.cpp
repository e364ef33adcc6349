// The cost of waking C waiters for any server that has a connection to each and one thread: it is
// told, and sends everyone a message.
//
//     kv_wake_floor CLIENTS REPS       prints JSON: the last waiter's time, in microseconds
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

using namespace dlaunch;

namespace {

constexpr std::size_t answer_bytes = 40;

void stay_on(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void send_all(int socket, std::size_t bytes) {
  static const std::array<char, answer_bytes> data{};
  if (::send(socket, data.data(), bytes, MSG_NOSIGNAL) != static_cast<ssize_t>(bytes)) {
    throw std::runtime_error("send: " + errno_text(errno));
  }
}

/// Until the first connection ends.
void serve(const std::vector<unique_fd>& waiters) {
  stay_on(0);
  std::array<char, answer_bytes> word{};
  while (::recv(waiters[0].get(), word.data(), word.size(), 0) > 0) {
    for (const unique_fd& waiter : waiters) send_all(waiter.get(), answer_bytes);
  }
}

double wake(const std::vector<unique_fd>& clients, int poll) {
  std::array<epoll_event, 512> events;
  std::array<char, answer_bytes> answer{};
  // All have asked and wait.
  for (std::size_t i = 1; i < clients.size(); ++i) send_all(clients[i].get(), 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto begin = Clock::now();
  send_all(clients[0].get(), 1);
  for (std::size_t woken = 0; woken < clients.size();) {
    const int ready = ::epoll_wait(poll, events.data(), static_cast<int>(events.size()), 0);
    for (int i = 0; i < ready; ++i) {
      const int socket = events[static_cast<std::size_t>(i)].data.fd;
      if (::recv(socket, answer.data(), answer.size(), 0) > 0) ++woken;
    }
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) throw std::runtime_error("usage: kv_wake_floor CLIENTS REPS");
  const int count = std::atoi(argv[1]);
  const int reps = std::atoi(argv[2]);
  if (count < 1 || reps < 1) throw std::runtime_error("both numbers are at least 1");
  const auto listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
  const Address address = local_address(listener.get());
  std::vector<unique_fd> waiters, clients;
  unique_fd poll(::epoll_create1(EPOLL_CLOEXEC));
  for (int i = 0; i < count; ++i) {
    clients.push_back(connect_tcp(address, Clock::now() + std::chrono::seconds(10)));
    waiters.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int at_once = 1;
    ::setsockopt(waiters.back().get(), IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    epoll_event event{EPOLLIN, {}};
    event.data.fd = clients.back().get();
    ::epoll_ctl(poll.get(), EPOLL_CTL_ADD, clients.back().get(), &event);
  }
  stay_on(1);
  std::vector<double> times;
  {
    const std::jthread server([&] { serve(waiters); });
    for (int rep = 0; rep < reps; ++rep) times.push_back(wake(clients, poll.get()));
    clients.clear();
  }
  std::sort(times.begin(), times.end());
  std::printf(R"({"last_us": %.6g, "last_min_us": %.6g})", times[times.size() / 2], times[0]);
  std::printf("\n");
} catch (const std::exception& error) {
  std::fprintf(stderr, "kv_wake_floor: %s\n", error.what());
  return 1;
}
