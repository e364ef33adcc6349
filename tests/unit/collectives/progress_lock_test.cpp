// The turns of the threads that share a mesh, and the place of the progress thread behind them.
#include "collectives/transport/progress_lock.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/segment/remote_barrier.hpp"
#include "tests/support/ranks.hpp"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Event;
using transport::Caller;
using transport::ProgressLock;
using transport::Turn;

namespace {

/// A lock that favours this thread, as that of a program with one thread that calls does.
struct Mesh {
  Mesh() {
    constexpr int many = 1000;
    if (allow_remote_barriers()) lock.allow_bias();
    for (int i = 0; i < many; ++i) static_cast<void>(lock.lock());
    CHECK(lock.was_called());
  }
  ProgressLock lock;
};

/// A thread that waits while another one polls.
class Sleeper {
 public:
  /// It sleeps when this returns, with `held` locked as before.
  Sleeper(ProgressLock& lock, ProgressLock::Held& held) {
    thread_ = std::jthread([this, &lock] {
      const auto mine = lock.lock();
      has_lock_.set();
      const auto deadline = deadline_after(60s);
      const bool has_turn = lock.take(deadline);
      has_turn_ = has_turn;
      was_told_ = Clock::now() < deadline;
      if (has_turn) lock.finish();
    });
    held.unlock();
    CHECK(has_lock_.wait());
    held = lock.lock();  // The sleeper lets go of it when it sleeps.
  }
  void join() { thread_.join(); }
  /// Whether it had a turn, or was told before its deadline that something has changed.
  bool has_turn() const { return has_turn_; }
  bool was_told() const { return was_told_; }

 private:
  Event has_lock_;
  bool has_turn_ = false, was_told_ = false;
  std::jthread thread_;
};

}  // namespace

TEST_CASE("while one thread polls the others sleep, until it stops") {
  Mesh mesh;
  auto held = mesh.lock.lock();
  CHECK(!mesh.lock.are_shared());
  {
    REQUIRE(mesh.lock.take(Clock::now()));
    std::optional<Turn> turn(mesh.lock);
    CHECK(mesh.lock.are_shared());
    Sleeper first(mesh.lock, held), second(mesh.lock, held);
    turn.reset();
    CHECK(mesh.lock.are_shared());  // They have not run since.
    held.unlock();
    for (Sleeper* each : {&first, &second}) {
      each->join();
      CHECK(!each->has_turn());
      CHECK(each->was_told());
    }
    held = mesh.lock.lock();
  }
  CHECK(!mesh.lock.are_shared());
  CHECK(mesh.lock.take(Clock::now()));
  mesh.lock.finish();
}

TEST_CASE("what changes without polling wakes those who sleep, and says whether a thread polls") {
  Mesh mesh;
  auto held = mesh.lock.lock();
  CHECK(!mesh.lock.tell());
  REQUIRE(mesh.lock.take(Clock::now()));
  CHECK(mesh.lock.tell());
  {
    Sleeper sleeper(mesh.lock, held);
    CHECK(mesh.lock.tell());
    held.unlock();
    sleeper.join();
    CHECK(!sleeper.has_turn());
    CHECK(sleeper.was_told());
    held = mesh.lock.lock();
  }
  // This thread still has its turn.
  CHECK(!mesh.lock.take(Clock::now()));
  mesh.lock.finish();
  CHECK(!mesh.lock.tell());
}

TEST_CASE("the progress thread's turn comes when nobody has called since it asked, and no sooner") {
  Mesh mesh;
  const auto is_quiet = [&] {
    const bool has_turn = mesh.lock.take_when_quiet();
    CHECK(mesh.lock.is_attended() == has_turn);
    if (has_turn) mesh.lock.finish();
    CHECK(!mesh.lock.is_attended());
    return has_turn;
  };
  static_cast<void>(mesh.lock.lock());
  auto held = mesh.lock.try_lock();
  REQUIRE(held);
  CHECK(!is_quiet());  // A caller has had the lock since;
  CHECK(is_quiet());   // the progress thread's own locking is no call.
  {
    const Caller caller(mesh.lock);
    CHECK(!is_quiet());
    const Caller another(mesh.lock);
    CHECK(!is_quiet());
  }
  CHECK(is_quiet());
  REQUIRE(mesh.lock.take(Clock::now()));
  CHECK(!is_quiet());
  mesh.lock.take_over();  // As if the turn had been the progress thread's.
  CHECK(is_quiet());
  {
    REQUIRE(mesh.lock.take(Clock::now()));
    Sleeper sleeper(mesh.lock, held);
    mesh.lock.finish();
    CHECK(mesh.lock.was_called());
    CHECK(!is_quiet());  // The sleeper has not run since.
    held.unlock();
  }
  held = mesh.lock.try_lock();
  REQUIRE(held);
  CHECK(is_quiet());
}

TEST_CASE("each locking of a caller is a call, and none of the progress thread's is") {
  Mesh mesh;
  CHECK(!mesh.lock.was_called());
  {
    const auto held = mesh.lock.lock();
    CHECK(mesh.lock.was_called());
    CHECK(!mesh.lock.was_called());
    CHECK(mesh.lock.released([&] { return mesh.lock.was_called() ? 1 : 2; }) == 2);
    CHECK(mesh.lock.was_called());
    mesh.lock.stepped_aside([&] { CHECK(!mesh.lock.was_called()); });
    CHECK(!mesh.lock.was_called());
  }
  static_cast<void>(mesh.lock.try_lock());
  CHECK(!mesh.lock.was_called());
}

TEST_CASE("a caller takes over from the progress thread, which notices it later") {
  Mesh mesh;
  Event is_aside, goes_on, took_over;
  std::jthread progress([&] {
    const auto held = mesh.lock.try_lock();
    CHECK(held);
    CHECK(!mesh.lock.was_called());
    CHECK(mesh.lock.take_when_quiet());
    mesh.lock.stepped_aside([&] {
      is_aside.set();
      CHECK(goes_on.wait());
    });
    CHECK(took_over.wait(0s));  // It never had the lock before.
    CHECK(!mesh.lock.is_attended());
    CHECK(mesh.lock.are_shared());  // The turn is the caller's.
    CHECK(!mesh.lock.take_when_quiet());
  });
  REQUIRE(is_aside.wait());
  {
    const auto held = mesh.lock.lock();
    const Caller caller(mesh.lock);
    CHECK(mesh.lock.is_attended());
    CHECK(mesh.lock.are_shared());
    mesh.lock.take_over();
    CHECK(!mesh.lock.is_attended());
    CHECK(!mesh.lock.are_shared());
    REQUIRE(mesh.lock.take(Clock::now()));
    goes_on.set();
    took_over.set();
    mesh.lock.released([&] {
      progress.join();
      return 0;
    });
    CHECK(mesh.lock.are_shared());
    mesh.lock.finish();
    CHECK(!mesh.lock.are_shared());
  }
}

TEST_CASE("of many threads that wait at once one polls at a time, and none is forgotten") {
  constexpr int threads = 4, turns = 500;
  Mesh mesh;
  std::atomic<int> polling{0}, all_turns{0};
  std::vector<std::jthread> all;
  const auto deadline = deadline_after(60s);
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&] {
      const auto held = mesh.lock.lock();
      const Caller caller(mesh.lock);
      for (int mine = 0; mine < turns && Clock::now() < deadline;) {
        if (!mesh.lock.take(deadline)) continue;
        const Turn turn(mesh.lock);
        const int others = mesh.lock.released([&] {
          const int before = polling.fetch_add(1);
          std::this_thread::yield();
          polling.fetch_sub(1);
          return before;
        });
        CHECK(others == 0);
        ++mine;
        ++all_turns;
      }
    });
  }
  all.clear();  // Joins.
  CHECK(all_turns == threads * turns);
  static_cast<void>(mesh.lock.was_called());
  const auto held = mesh.lock.try_lock();
  REQUIRE(held);
  CHECK(!mesh.lock.are_shared());
  CHECK(mesh.lock.take_when_quiet());
  mesh.lock.finish();
}
