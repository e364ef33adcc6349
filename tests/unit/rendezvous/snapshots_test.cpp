// Looks at a loop that works, and at one that stands still.
#include "rendezvous/daemon/snapshots.hpp"

#include <atomic>
#include <new>
#include <thread>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

struct Loop {
  ~Loop() { work.reset(); }
  boost::asio::io_context io{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  std::jthread thread{[this] { io.run(); }};
};

DaemonStatus seen_at(Clock::time_point now) {
  DaemonStatus status;
  status.now = now;
  return status;
}

}  // namespace

TEST_CASE("the loop looks once for all who ask within a second, and not before somebody asks") {
  std::atomic<int> looks = 0;
  Loop loop;
  Snapshots snapshots(loop.io, [&](const Snapshots::Take& take) {
    ++looks;
    take(seen_at(Clock::now()));
  });
  CHECK(looks == 0);
  const auto first = snapshots.get();
  REQUIRE(first);
  // A machine that stands still for a second in between sees another one.
  const auto second = snapshots.get();
  CHECK((second == first || second->now - first->now >= 1s));
  CHECK(looks <= 2);
}

TEST_CASE("one that is old is not shown again") {
  std::atomic<int> looks = 0;
  Loop loop;
  Snapshots snapshots(loop.io, [&](const Snapshots::Take& take) {
    ++looks;
    take(seen_at(Clock::now() - 1h));
  });
  const auto first = snapshots.get();
  const auto second = snapshots.get();
  CHECK(looks == 2);
  CHECK(first != second);
}

TEST_CASE("a loop that stands still is not waited for by everybody") {
  boost::asio::io_context nobody;
  Snapshots snapshots(nobody, [](const Snapshots::Take& take) { take(seen_at(Clock::now())); });
  CHECK(snapshots.get() == nullptr);
  // The time that the loop had is over for the others, too: a thousand do not wait 2 s each.
  for (int i = 0; i < 1000; ++i) CHECK(snapshots.get() == nullptr);
  // It turns again, and has been asked once.
  CHECK(nobody.run() == 1);
  CHECK(snapshots.get() != nullptr);
}

TEST_CASE("a look that fails is told to those who asked, and the next one looks again") {
  int looks = 0;
  Loop loop;
  Snapshots snapshots(loop.io, [&](const Snapshots::Take& take) {
    if (++looks == 1) throw std::bad_alloc();
    take(seen_at(Clock::now()));
  });
  CHECK_THROWS_AS(snapshots.get(), std::bad_alloc);
  CHECK(snapshots.get() != nullptr);
}

TEST_CASE("the end is not waited for") {
  boost::asio::io_context nobody;
  Snapshots snapshots(nobody, [](const Snapshots::Take&) {});
  std::jthread reader([&] { CHECK(snapshots.get() == nullptr); });
  snapshots.stop();
}
