#pragma once

#include "runtime/base/os/socket.hpp"

#include <dlaunch/store.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>

namespace dlaunch::test {

/// Somebody on the way: a TCP port whose connections lead to another one, through whose hands goes
/// what either side says. Everything is recorded as it was said.
class Interposer {
 public:
  struct Said {
    int connection = 0;  ///< From 0 on, in the order in which they came.
    bool by_client = false;
    int flight = 0;  ///< From 0 on: the how many-th piece of this side of this connection.
    Bytes bytes;
  };
  /// To which connection's other side it goes on, and what.
  using Hand = std::function<std::pair<int, Bytes>(const Said& said)>;
  static std::pair<int, Bytes> pass_on(const Said& said) { return {said.connection, said.bytes}; }

  explicit Interposer(Address target, Hand hand = pass_on)
      : target_(target),
        hand_(std::move(hand)),
        listener_(listen_tcp(resolve("127.0.0.1", 0).at(0))),
        kick_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}
  ~Interposer() {
    thread_.request_stop();
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(kick_.get(), &one, sizeof one);
  }

  Address address() const { return local_address(listener_.get()); }
  /// All that one side of a connection has said.
  Bytes recorded(int connection, bool by_client) {
    const std::lock_guard lock(mutex_);
    Bytes all;
    for (const Said& said : said_) {
      if (said.connection != connection || said.by_client != by_client) continue;
      all.insert(all.end(), said.bytes.begin(), said.bytes.end());
    }
    return all;
  }

 private:
  struct Link {
    unique_fd client, server;
    int flights_of_client = 0, flights_of_server = 0;
  };

  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> polled{{kick_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const auto& [number, link] : links_) {
        polled.push_back({link.client.get(), POLLIN, 0});
        polled.push_back({link.server.get(), POLLIN, 0});
      }
      ::poll(polled.data(), polled.size(), -1);
      std::vector<int> numbers;
      for (const auto& [number, link] : links_) numbers.push_back(number);
      std::size_t at = 2;
      for (const int number : numbers) {
        if (polled[at++].revents != 0) carry(number, true);
        if (polled[at++].revents != 0) carry(number, false);
      }
      if (polled[1].revents != 0) accept();
    }
  }

  void accept() {
    unique_fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!client) return;
    links_[next_++] = {std::move(client),
                       connect_tcp(target_, Clock::now() + std::chrono::seconds(20))};
  }

  void carry(int number, bool by_client) {
    const auto found = links_.find(number);
    if (found == links_.end()) return;
    Link& link = found->second;
    std::array<std::byte, 64u << 10> part{};
    const int from = by_client ? link.client.get() : link.server.get();
    const ssize_t size = ::recv(from, part.data(), part.size(), 0);
    if (size <= 0) {
      links_.erase(found);
      return;
    }
    Said said{number, by_client, by_client ? link.flights_of_client++ : link.flights_of_server++,
              Bytes(part.begin(), part.begin() + size)};
    const auto [to, bytes] = hand_(said);
    {
      const std::lock_guard lock(mutex_);
      said_.push_back(std::move(said));
    }
    const auto other = links_.find(to);
    if (other == links_.end() || bytes.empty()) return;
    const unique_fd& socket = by_client ? other->second.server : other->second.client;
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  const Address target_;
  const Hand hand_;
  const unique_fd listener_, kick_;
  std::map<int, Link> links_;  ///< The thread's own.
  int next_ = 0;
  std::mutex mutex_;
  std::vector<Said> said_;
  std::jthread thread_;
};

}  // namespace dlaunch::test
