// Ranks without an agent come to share memory: all of a host, or none.
#include "runtime/world/by_hand/neighbours.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"

#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

/// A link on which nothing is heard but, perhaps, a loss.
class Link final : public Membership {
 public:
  int fd() const override { return news_.first.get(); }
  std::vector<PeerLoss> losses() override {
    const std::lock_guard lock(mutex_);
    return losses_;
  }
  void report(const Error&, const Claim&) noexcept override {}
  void inquire(const std::vector<int>&) noexcept override {}
  std::optional<std::map<int, SeenDoing>> doing() const override { return std::nullopt; }
  unique_fd take_listener() override { return {}; }
  std::shared_ptr<Segment> segment() override { return nullptr; }
  std::optional<Key> data_key() const override { return std::nullopt; }
  void drain_output(Clock::time_point) override {}
  void lose(int rank) {
    {
      const std::lock_guard lock(mutex_);
      losses_.push_back({rank, "here", "killed by SIGKILL"});
    }
    REQUIRE(::write(news_.second.get(), "!", 1) == 1);
  }

 private:
  std::pair<unique_fd, unique_fd> news_ = socket_pair();
  std::mutex mutex_;
  std::vector<PeerLoss> losses_;
};

struct Rank {
  explicit Rank(int number) : rank(number) { info.rank = number; }

  std::future<std::shared_ptr<Segment>> share(std::vector<Neighbour> neighbours,
                                              Clock::duration patience = std::chrono::seconds(20)) {
    return std::async(std::launch::async, [this, neighbours = std::move(neighbours), patience] {
      return meeting.share(neighbours, info, link, deadline_after(patience));
    });
  }
  Neighbour neighbour() const { return {rank, ::geteuid(), meeting.socket_name()}; }

  int rank;
  WorldInfo info;
  Link link;
  SegmentMeeting meeting;
};

bool hangs_up(int fd) {
  pollfd wait{fd, POLLIN, 0};
  char byte = 0;
  return ::poll(&wait, 1, 20000) == 1 && ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

}  // namespace

TEST_CASE("what a rank tells its neighbours comes back, sorted, without what is none") {
  const Neighbour a{3, 0, "@x", processors_from("0-3/1500@7:8"), "net:[1]/a host"}, b{10, 1000, ""};
  CHECK(neighbours_from(to_text(b) + to_text(a)) == std::vector{a, b});
  CHECK(neighbours_from("\n1\n1 \n1 2\nx 2 @y\n-1 2 @y\n1 -2 @y\n" + to_text(a)) == std::vector{a});
  CHECK(neighbours_from("").empty());
}

TEST_CASE("all of a host get the same memory, whatever their ranks in the world") {
  Rank two(2), five(5), nine(9);
  const std::vector all{two.neighbour(), five.neighbour(), nine.neighbour()};
  auto c = nine.share(all), a = two.share(all), b = five.share(all);
  const auto first = a.get(), second = b.get(), third = c.get();
  REQUIRE(first);
  REQUIRE(second);
  REQUIRE(third);
  CHECK(second->id() == first->id());
  CHECK(third->id() == first->id());
  CHECK(third->local_of(9) == 2);
  CHECK(third->size() == 3);
}

TEST_CASE("ranks of other places share processors, and no memory") {
  Rank one(1), two(2), three(3);
  std::vector all{one.neighbour(), two.neighbour(), three.neighbour()};
  for (auto& neighbour : all) neighbour.processors = processors_from("0-1");
  all[2].place = "another container";
  auto a = one.share(all), b = two.share(all);
  const auto first = a.get(), second = b.get();
  REQUIRE(first);
  REQUIRE(second);
  CHECK(first->size() == 2);
  CHECK(first->oversubscribed());
  CHECK(three.share(all).get() == nullptr);
}

TEST_CASE("nobody waits where it is known that it cannot be") {
  Rank one(1), two(2);
  CHECK(one.share({one.neighbour()}).get() == nullptr);
  std::vector of_two_users{one.neighbour(), two.neighbour()};
  of_two_users[1].user += 1;
  CHECK(one.share(of_two_users).get() == nullptr);
  std::vector without_socket{one.neighbour(), two.neighbour()};
  without_socket[0].socket.clear();
  CHECK(two.share(without_socket).get() == nullptr);
  // A name that is in another network.
  std::vector elsewhere{one.neighbour(), two.neighbour()};
  elsewhere[0].socket += "x";
  CHECK(two.share(elsewhere).get() == nullptr);
}

TEST_CASE("one that does not map it is enough for all to do without") {
  Rank zero(0), one(1);
  const std::vector all{zero.neighbour(), one.neighbour(), Neighbour{2, ::geteuid(), "@none"}};
  auto a = zero.share(all), b = one.share(all);
  const unique_fd two =
      connect_unix(zero.neighbour().socket, deadline_after(std::chrono::seconds(5)));
  const std::int32_t rank = 2;
  REQUIRE(::send(two.get(), &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank);
  char byte = 0;
  REQUIRE(::recv(two.get(), &byte, 1, 0) == 1);  // It came, and is dropped.
  ::shutdown(two.get(), SHUT_RDWR);
  CHECK(a.get() == nullptr);
  CHECK(b.get() == nullptr);
}

TEST_CASE("strangers are dropped, and change nothing") {
  Rank zero(0), one(1);
  const std::vector all{zero.neighbour(), one.neighbour()};
  auto a = zero.share(all);
  for (const std::int32_t claimed : {0, 7, -1}) {
    const unique_fd stranger =
        connect_unix(zero.neighbour().socket, deadline_after(std::chrono::seconds(5)));
    REQUIRE(::send(stranger.get(), &claimed, sizeof claimed, MSG_NOSIGNAL) == sizeof claimed);
    CHECK(hangs_up(stranger.get()));
  }
  const unique_fd silent =
      connect_unix(zero.neighbour().socket, deadline_after(std::chrono::seconds(5)));
  auto b = one.share(all);
  CHECK(b.get() != nullptr);
  CHECK(a.get() != nullptr);
}

TEST_CASE("a loss, or the deadline, ends the wait") {
  Rank zero(0), one(1);
  const std::vector all{zero.neighbour(), one.neighbour(), Neighbour{2, ::geteuid(), "@none"}};
  auto a = zero.share(all), b = one.share(all);
  zero.link.lose(2);
  CHECK(a.get() == nullptr);
  CHECK(b.get() == nullptr);
  Rank four(4);
  CHECK(four.share({four.neighbour(), one.neighbour()}, std::chrono::milliseconds(10)).get() ==
        nullptr);
}
