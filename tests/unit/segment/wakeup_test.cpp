// Bells between ranks: sleepers are woken, and nobody else is rung.
#include "runtime/segment/wakeup.hpp"

#include "runtime/base/deadline.hpp"

#include <atomic>
#include <thread>

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

constexpr auto patience = std::chrono::seconds(20);

std::shared_ptr<Segment> segment_for(int ranks) {
  SegmentPlan plan;
  for (int rank = 0; rank < ranks; ++rank) plan.world_ranks.push_back(rank);
  plan.arena_bytes = 4096;
  return Segment::create(plan);
}

bool rung(const Wakeup& bell, Clock::time_point deadline = Clock::time_point::min()) {
  pollfd wait{bell.fd(), POLLIN, 0};
  const bool now = deadline == Clock::time_point::min();
  return ::poll(&wait, 1, now ? 0 : poll_timeout_ms(deadline)) == 1;
}

}  // namespace

TEST_CASE("only who lies down is rung, once") {
  const auto segment = segment_for(3);
  Wakeup zero(segment, 0, 0), one(segment, 1, 0), two(segment, 2, 0);
  REQUIRE(zero.fd() >= 0);
  zero.ring_if_asleep(1);
  CHECK_FALSE(rung(one));
  one.lie_down();
  CHECK(segment->rank(1).asleep.load() == 1);
  zero.ring_if_asleep(1);
  CHECK(segment->rank(1).asleep.load() == 0);
  CHECK(rung(one));
  one.clear();
  CHECK_FALSE(rung(one));
  // The second to come finds the word taken.
  zero.ring_if_asleep(1);
  two.ring_if_asleep(1);
  CHECK_FALSE(rung(one));
  one.lie_down();
  one.get_up();
  two.ring_if_asleep(1);
  CHECK_FALSE(rung(one));
}

TEST_CASE("each bell of a rank is heard by whoever sleeps behind it") {
  const auto segment = segment_for(2);
  Wakeup zero(segment, 0, 0), first(segment, 1, 0), last(segment, 1, Wakeup::bells_max - 1);
  last.lie_down();
  zero.ring_if_asleep(1);
  CHECK_FALSE(rung(first));
  CHECK(rung(last));
  last.clear();
  first.lie_down();
  last.lie_down();
  first.get_up();
  CHECK(segment->rank(1).asleep.load() == 1u << (Wakeup::bells_max - 1));
  first.lie_down();
  zero.ring_if_asleep(1);
  CHECK(rung(first));
  CHECK(rung(last));
}

TEST_CASE("a name that is taken gives no bell, and ringing one that is gone does no harm") {
  const auto segment = segment_for(2);
  Wakeup zero(segment, 0, 0);
  Wakeup again(segment, 0, 0);
  CHECK(again.fd() < 0);
  again.clear();
  { Wakeup(segment, 1, 0).lie_down(); }
  zero.ring_if_asleep(1);
  CHECK(segment->rank(1).asleep.load() == 0);
}

TEST_CASE("who got no bell does not take the word of whoever has it") {
  const auto segment = segment_for(2);
  Wakeup zero(segment, 0, 0), owner(segment, 1, 0), second(segment, 1, 0);
  REQUIRE(second.fd() < 0);
  owner.lie_down();
  second.lie_down();
  second.get_up();
  zero.ring_if_asleep(1);
  CHECK(rung(owner));
}

TEST_CASE("a bell that nobody answers does not hold up who rings it") {
  const auto segment = segment_for(2);
  Wakeup zero(segment, 0, 0), one(segment, 1, 0);
  for (int i = 0; i < 2000; ++i) {
    one.lie_down();
    zero.ring_if_asleep(1);
  }
  CHECK(rung(one));
  one.clear();
  CHECK_FALSE(rung(one));
}

TEST_CASE("a process that sleeps in poll is woken by another that maps the same memory") {
  const auto segment = segment_for(2);
  auto& said = *new (segment->at(segment->allocate(0, 64).value())) std::atomic<int>(0);
  Wakeup zero(segment, 0, 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    Wakeup one(segment, 1, 0);
    const auto deadline = Clock::now() + patience;
    while (said.load() == 0 && Clock::now() < deadline) {
      one.lie_down();
      if (said.load() == 0) rung(one, deadline);
      one.get_up();
      one.clear();
    }
    ::_exit(said.load() == 0 ? 1 : 0);
  }
  const auto deadline = Clock::now() + patience;
  while (segment->rank(1).asleep.load() == 0 && Clock::now() < deadline) std::this_thread::yield();
  CHECK(segment->rank(1).asleep.load() == 1);
  said.store(1);
  zero.ring_if_asleep(1);
  int status = -1;
  CHECK(::waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
}

TEST_CASE("no wake-up is lost between threads that take turns") {
  const auto segment = segment_for(2);
  std::atomic<int> turn{0};
  const auto deadline = Clock::now() + patience;
  constexpr int turns = 20000;
  const auto play = [&](int self) {
    Wakeup bell(segment, self, 0);
    for (int next = self; next < turns && Clock::now() < deadline; next += 2) {
      while (turn.load() != next && Clock::now() < deadline) {
        bell.lie_down();
        if (turn.load() != next) rung(bell, deadline);
        bell.get_up();
        bell.clear();
      }
      turn.store(next + 1);
      bell.ring_if_asleep(1 - self);
    }
  };
  std::jthread other([&] { play(1); });
  play(0);
  other.join();
  CHECK(turn.load() == turns);
}
