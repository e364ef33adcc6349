// Started calls: they run while their callers do something else, in their order, and end in every
// way in which a call may end.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <latch>
#include <optional>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::FakeMembership;
using testing::Outcome;
using testing::run_ranks;

namespace {

void check_ok(const std::vector<Outcome>& outcomes) {
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

/// Without a call that could make progress: done() alone is asked.
bool comes_true(const std::function<bool()>& holds) {
  const auto deadline = Clock::now() + 60s;
  while (!holds() && Clock::now() < deadline) std::this_thread::yield();
  return holds();
}

Outcome outcome_of(Work& work) {
  try {
    work.wait();
    return {};
  } catch (const Error& error) {
    return {error.errc(), error.what()};
  }
}

int sum_of_ranks(const Communicator& comm) { return comm.size() * (comm.size() - 1) / 2; }
int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

}  // namespace

TEST_CASE("collectives complete while no rank is in a call") {
  for (const int size : {1, 2, 3, 5}) {
    std::latch all_started(size);
    check_ok(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      std::vector<float> large(300000, static_cast<float>(comm.rank()));
      std::vector<int> small{comm.rank()}, root{comm.rank()};
      Work first = comm.start_all_reduce(large);
      Work second = comm.start_all_reduce(small, ReduceOp::max);
      Work third = comm.start_broadcast(root, size - 1);
      all_started.arrive_and_wait();
      CHECK(comes_true([&] { return third.done(); }));
      CHECK(first.done());
      CHECK(second.done());
      CHECK(large == std::vector<float>(large.size(), static_cast<float>(sum_of_ranks(comm))));
      CHECK(small[0] == size - 1);
      CHECK(root[0] == size - 1);
      for (Work* work : {&third, &first, &second}) work->wait();
      comm.barrier();
    }));
  }
}

TEST_CASE("large messages both ways complete while no rank is in a call") {
  for (const int size : {1, 2, 4}) {
    std::latch all_started(size);
    check_ok(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      const std::vector<int> out(2'000'000, comm.rank());
      std::vector<int> in(out.size()), strided(2000);
      // Sends everywhere first: no side receives before it has sent.
      Work sent = comm.isend(out, next(comm));
      Work few = comm.isend(ConstTensorView(out.data(), 1000, DType::i32), next(comm), {.tag = 1});
      Work received = comm.irecv(in, previous(comm));
      const TensorView every_second(strided.data(), 1000, DType::i32, {}, 2);
      Work spread = comm.irecv(every_second, previous(comm), {.tag = 1});
      all_started.arrive_and_wait();
      CHECK(comes_true([&] { return sent.done() && received.done(); }));
      CHECK(comes_true([&] { return few.done() && spread.done(); }));
      CHECK(in == std::vector<int>(in.size(), previous(comm)));
      CHECK(strided[1998] == previous(comm));
      CHECK(strided[1999] == 0);
      comm.barrier();
    }));
  }
}

TEST_CASE("waits in every order, over communicators that were started on in different orders") {
  for (const int size : {2, 3}) {
    check_ok(run_ranks(size, [&](const World& world) {
      Communicator a(world);
      a.set_timeout(60s);
      Communicator b = a.duplicate();
      std::array<std::size_t, 5> order{0, 1, 2, 3, 4};
      int round = 0;
      do {
        std::vector<float> x(70000, 1), y(100, 2);
        std::vector<int> z{a.rank()}, out(50000, a.rank()), in(out.size());
        std::vector<Work> works(5);
        const auto on_a = [&] {
          works[0] = a.start_all_reduce(x);
          works[1] = a.start_broadcast(z, 1);
        };
        const auto on_b = [&] {
          works[2] = b.start_all_reduce(y);
          works[3] = b.isend(out, next(b));
          works[4] = b.irecv(in, previous(b));
        };
        if ((a.rank() + round) % 2 == 0) {
          on_a();
          on_b();
        } else {
          on_b();
          on_a();
        }
        // Ranks wait in different orders, too.
        const auto shift = static_cast<std::size_t>(a.rank());
        for (std::size_t i = 0; i < order.size(); ++i) works[order[(i + shift) % 5]].wait();
        CHECK(x[69999] == static_cast<float>(size));
        CHECK(y[99] == static_cast<float>(2 * size));
        CHECK(z[0] == 1);
        CHECK(in == std::vector<int>(in.size(), previous(a)));
        ++round;
      } while (std::next_permutation(order.begin(), order.end()));
      a.barrier();
    }));
  }
}

TEST_CASE("every started form does what its blocking form does") {
  check_ok(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    const std::vector<int> one{me + 1}, three{me * 10, me * 10 + 1, me * 10 + 2};
    const std::vector<std::size_t> counts{1, 1, 1};
    std::vector<int> reduced(1), all(3), all_v(3), gathered(3), gathered_v(3), part(1), part_v(1),
        mine(1), mine_v(1), turned(3), turned_v(3);
    std::vector<Work> works;
    works.push_back(comm.start_barrier());
    works.push_back(comm.start_reduce(one, reduced, 2));
    works.push_back(comm.start_all_gather(one, all));
    works.push_back(comm.start_all_gather_v(one, all_v, counts));
    works.push_back(comm.start_gather(one, gathered, 1));
    works.push_back(comm.start_gather_v(one, gathered_v, counts, 1));
    works.push_back(comm.start_scatter(three, part, 2));
    works.push_back(comm.start_scatter_v(three, part_v, counts, 2));
    works.push_back(comm.start_reduce_scatter(three, mine));
    works.push_back(comm.start_reduce_scatter_v(three, mine_v, counts));
    works.push_back(comm.start_all_to_all(three, turned));
    works.push_back(comm.start_all_to_all_v(three, counts, turned_v, counts));
    works.clear();  // Waits.
    const std::vector<int> ones{1, 2, 3}, column{me, 10 + me, 20 + me};
    CHECK(reduced[0] == (me == 2 ? 6 : 0));
    CHECK(all == ones);
    CHECK(all_v == ones);
    CHECK(gathered == (me == 1 ? ones : std::vector<int>(3)));
    CHECK(gathered_v == gathered);
    CHECK(part[0] == 20 + me);
    CHECK(part_v == part);
    CHECK(mine[0] == 30 + 3 * me);
    CHECK(mine_v == mine);
    CHECK(turned == column);
    CHECK(turned_v == column);
  }));
}

TEST_CASE("very many started calls, and those that follow them, stay in order") {
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<int> x{1};
    std::vector<Work> works;
    for (int i = 0; i < 3000; ++i) works.push_back(comm.start_all_reduce(x, ReduceOp::max));
    std::vector<int> y{comm.rank()};
    Communicator other = comm.duplicate();  // A blocking call behind all of them.
    CHECK(std::all_of(works.begin(), works.end(), [](const Work& work) { return work.done(); }));
    other.all_reduce(y);
    CHECK(y[0] == 1);
  }));
}

TEST_CASE("a mismatch is the error of the started call that it is in, and sticks") {
  for (const auto& outcome : run_ranks(3, [](const World& world) {
         Communicator comm(world);
         comm.set_timeout(60s);
         std::vector<int> good{1}, bad(comm.rank() == 1 ? 2 : 1), later{1};
         Work first = comm.start_all_reduce(good);
         Work second = comm.start_all_reduce(bad);
         Work third = comm.start_all_reduce(later);
         CHECK(comes_true([&] { return third.done(); }));
         CHECK(outcome_of(first).ok());
         CHECK(good[0] == 3);
         CHECK(outcome_of(second).code == Errc::mismatch);
         CHECK(outcome_of(second).code == Errc::mismatch);  // The same again.
         CHECK(outcome_of(third).mentions("all_reduce #2"));
         comm.barrier();
       })) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK(outcome.mentions("all_reduce #2"));
  }
}

TEST_CASE("wrong arguments of a started call are its own error, and the communicator goes on") {
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    std::vector<int> x{1};
    Work wrong = comm.start_broadcast(x, 7);
    Work right = comm.start_all_reduce(x);
    CHECK(outcome_of(wrong).code == Errc::misuse);
    CHECK(outcome_of(right).ok());
    CHECK(x[0] == 2);
    Work negative = comm.start_barrier({.timeout = -1s});
    CHECK(outcome_of(negative).code == Errc::misuse);
    comm.barrier();
  }));
}

TEST_CASE("a started call that waits too long says who is absent") {
  std::latch timed_out(2);
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    std::vector<int> x{1};
    if (comm.rank() == 0) {
      Work work = comm.start_all_reduce(x, ReduceOp::sum, {.timeout = 200ms});
      comm.set_timeout(60s);  // Not for what was started before.
      const auto outcome = outcome_of(work);
      CHECK(outcome.code == Errc::timeout);
      CHECK_MESSAGE(outcome.mentions("rank 1"), outcome.text);
    }
    timed_out.arrive_and_wait();
  });
  check_ok(outcomes);
}

TEST_CASE("a lost peer ends what was started with it") {
  std::latch started(2);
  check_ok(run_ranks(2, [&](const World& world) {
    std::optional<Communicator> comm(world);
    comm->set_timeout(60s);
    comm->barrier();
    std::vector<int> in{0}, x{1};
    // Both sides have a connection to see the end of.
    std::vector<int> hello{1};
    comm->send(hello, 1 - comm->rank());
    comm->recv(hello, 1 - comm->rank());
    if (comm->rank() == 1) {
      started.arrive_and_wait();
      comm.reset();
      return;
    }
    Work message = comm->irecv(in, 1);
    started.arrive_and_wait();
    CHECK(comes_true([&] { return message.done(); }));
    CHECK(outcome_of(message).code == Errc::peer_lost);
    Work collective = comm->start_all_reduce(x);
    CHECK(outcome_of(collective).code == Errc::peer_lost);
  }));
}

TEST_CASE("a message that does not fit is complete, and its wait says so") {
  for (const auto& outcome : run_ranks(2, [](const World& world) {
         Communicator comm(world);
         comm.set_timeout(60s);
         const std::vector<int> out(5);
         std::vector<int> in(4);
         if (comm.rank() == 0) {
           Work sent = comm.isend(out, 1);
           sent.wait();
         } else {
           Work received = comm.irecv(in, 0);
           CHECK(comes_true([&] { return received.done(); }));
           CHECK(outcome_of(received).code == Errc::mismatch);
         }
         comm.barrier();
         comm.barrier();
       })) {
    CHECK(outcome.code == Errc::mismatch);
  }
}

TEST_CASE("an error in one thread's call ends the others' calls on that communicator") {
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<int> x{1}, never{0};
    if (comm.rank() == 0) {
      Work collective = comm.start_all_reduce(x);  // The other rank does not come.
      try {
        comm.recv(never, 1, {.timeout = 100ms});
      } catch (const Error& error) {
        CHECK(error.errc() == Errc::timeout);
      }
      CHECK(outcome_of(collective).code == Errc::timeout);
    } else {
      try {
        comm.recv(never, 0);
      } catch (const Error& error) {
        CHECK(error.errc() == Errc::timeout);
      }
    }
  }));
}

TEST_CASE("abort, from another thread, ends what runs and what is queued") {
  std::latch over(2);
  check_ok(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    if (comm.rank() == 0) {
      std::vector<int> x{1}, in{0};
      std::vector<Work> works;
      // The other rank comes to none of them.
      for (int i = 0; i < 10; ++i) works.push_back(comm.start_broadcast(x, 1));
      works.push_back(comm.irecv(in, 1));
      std::jthread([&] { comm.abort(); }).join();
      for (auto& work : works) CHECK(comes_true([&] { return work.done(); }));
      for (auto& work : works) CHECK(outcome_of(work).code == Errc::aborted);
      CHECK_THROWS_AS(comm.barrier(), Error);
    }
    over.arrive_and_wait();
  }));
}

TEST_CASE("a barrier that was started waits for the launcher in its turn") {
  std::vector<std::shared_ptr<FakeMembership>> memberships;
  for (int i = 0; i < 2; ++i) memberships.push_back(std::make_shared<FakeMembership>());
  check_ok(run_ranks(
      2,
      [](const World& world) {
        Communicator comm(world);
        Work ordered = comm.start_barrier({.ordered_output = true});
        Work plain = comm.start_barrier();
        ordered.wait();
        plain.wait();
      },
      memberships));
  for (const auto& membership : memberships) CHECK(membership->drained() == 1);
}
