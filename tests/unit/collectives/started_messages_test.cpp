// Started messages in windows, in any order, from anybody, and looked at in every way.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <latch>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::run_ranks;

namespace {

void check_ok(const std::vector<testing::Outcome>& outcomes) {
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

int next(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int previous(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

std::vector<int> content(std::size_t count, int seed) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), seed * 1000);
  return data;
}

}  // namespace

TEST_CASE(
    "windows of messages of all sizes, their receives before them and behind, come in order") {
  constexpr int window = 40, rounds = 30;
  for (const int size : {1, 2, 3}) {
    check_ok(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      std::mt19937 random(static_cast<unsigned>(comm.rank()) + 1);
      // The same on all ranks.
      std::mt19937 shared(7);
      for (int round = 0; round < rounds; ++round) {
        std::vector<std::vector<int>> out, in;
        for (int i = 0; i < window; ++i) {
          const std::size_t count =
              std::array{0u, 1u, 2u, 3u, 14u, 200u, 3000u, 40000u}[shared() % 8];
          out.push_back(content(count, comm.rank() + i));
          in.emplace_back(count, -1);
        }
        std::vector<Work> works;
        const auto send = [&] {
          for (const auto& each : out) works.push_back(comm.isend(each, next(comm)));
        };
        const auto receive = [&] {
          for (auto& each : in) works.push_back(comm.irecv(each, previous(comm)));
        };
        // The ranks do it in different orders.
        if (random() % 2 == 0) {
          send();
          receive();
        } else {
          receive();
          send();
        }
        std::shuffle(works.begin(), works.end(), random);
        if (random() % 2 == 0) {
          wait_all(works);
        } else {
          for (Work& work : works) {
            while (!work.test()) {
            }
          }
        }
        for (int i = 0; i < window; ++i) {
          const auto at = static_cast<std::size_t>(i);
          CHECK(in[at] == content(in[at].size(), previous(comm) + i));
        }
      }
    }));
  }
}

TEST_CASE("by their tags messages find their receives in any order") {
  constexpr int count = 200;
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<int> out(count), in(count, -1), order(count);
    std::iota(out.begin(), out.end(), 0);
    std::iota(order.begin(), order.end(), 0);
    std::mt19937 random(static_cast<unsigned>(comm.rank()) + 1);
    for (int round = 0; round < 20; ++round) {
      std::fill(in.begin(), in.end(), -1);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Work> works;
      for (const int tag : order) {
        const auto at = static_cast<std::size_t>(tag);
        works.push_back(comm.irecv(in[at], 1 - comm.rank(), {.tag = tag}));
        works.push_back(comm.isend(out[at], 1 - comm.rank(), {.tag = tag}));
      }
      wait_all(works);
      CHECK(in == out);
    }
  }));
}

TEST_CASE("started receives from anybody take messages in the order of each rank") {
  constexpr int count = 50;
  for (const int size : {2, 4}) {
    check_ok(run_ranks(size, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      if (comm.rank() > 0) {
        std::vector<std::array<int, 2>> out(count);
        std::vector<Work> works;
        for (int i = 0; i < count; ++i) {
          auto& message = out[static_cast<std::size_t>(i)];
          message = {comm.rank(), i};
          works.push_back(comm.isend(message, 0, {.tag = i}));
        }
        return wait_all(works);
      }
      std::vector<std::array<int, 2>> in(static_cast<std::size_t>(count * (size - 1)));
      std::vector<Work> works;
      for (auto& each : in) works.push_back(comm.irecv(each, any_source, {.tag = any_tag}));
      std::vector<int> seen(static_cast<std::size_t>(size), 0);
      for (std::size_t i = 0; i < in.size(); ++i) {
        works[i].wait();
        CHECK(in[i][1] == seen[static_cast<std::size_t>(in[i][0])]++);
      }
    }));
  }
}

TEST_CASE("looks that wait for nothing, and nothing else, move messages") {
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const int other = 1 - comm.rank();
    const std::vector<int> out = content(500000, comm.rank());
    for (const bool by_test : {true, false}) {
      std::vector<int> in(out.size());
      Work sent = comm.isend(out, other), received = comm.irecv(in, other);
      const auto is_over = [&](Work& work) { return by_test ? work.test() : work.wait_for(0s); };
      const auto deadline = Clock::now() + 60s;
      bool over = false;
      while (!over && Clock::now() < deadline) {
        over = is_over(sent);
        over = is_over(received) && over;
      }
      CHECK(over);
      CHECK(in == content(in.size(), other));
      comm.barrier();
    }
  }));
}

TEST_CASE("a message that waits for nothing takes part in all that a Work can do") {
  check_ok(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const int other = 1 - comm.rank();
    const std::vector<int> out = content(2, comm.rank());
    std::vector<int> in(2);
    comm.barrier();
    Work sent = comm.isend(out, other), received = comm.irecv(in, other);
    std::array<Work*, 2> both{&sent, &received};
    CHECK(wait_any(both, 60s).has_value());
    wait_all(both);
    for (Work* work : both) {
      CHECK(!work->is_empty());
      CHECK(work->done());
      CHECK(work->test());
      CHECK(work->wait_for(0s));
      CHECK(work->error() == nullptr);
      CHECK_THROWS_AS(work->order_before(nullptr), Error);
      CHECK_THROWS_AS(work->on_complete([](const std::exception_ptr&) {}), Error);
      work->wait();
      Work moved = std::move(*work);
      CHECK(work->is_empty());
      CHECK(moved.test());
    }
    CHECK(in == content(2, other));
  }));
}

TEST_CASE("one thread's started messages go on while another is in a call") {
  std::latch started(2);
  check_ok(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Communicator other_comm = comm.duplicate();
    const int other = 1 - comm.rank();
    const std::vector<int> out = content(700000, comm.rank());
    std::vector<int> in(out.size());
    Work sent = comm.isend(out, other), received = comm.irecv(in, other);
    started.arrive_and_wait();
    const auto go_on = [&] {
      const auto deadline = Clock::now() + 60s;
      while (!(sent.done() && received.done()) && Clock::now() < deadline) {
        std::this_thread::yield();
      }
      CHECK(sent.done());
      CHECK(received.done());
      CHECK(in == content(in.size(), other));
    };
    int word = comm.rank();
    if (comm.rank() == 1) {
      go_on();
      return other_comm.send(word, 0);
    }
    std::thread caller([&] { other_comm.recv(word, 1); });
    go_on();
    caller.join();
    CHECK(word == 1);
  }));
}

TEST_CASE(
    "receives that were posted first take first what has come before a later one is started") {
  constexpr int early = 16, late = 24;
  constexpr int messages = early + late;
  std::latch posted(2), sent(2);
  check_ok(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 0) {
      posted.arrive_and_wait();
      for (int i = 0; i < messages; ++i) comm.send(i, 1);
      sent.arrive_and_wait();
      return;
    }
    std::array<int, messages> in;
    in.fill(-1);
    std::vector<Work> works;
    for (int i = 0; i < early; ++i) works.push_back(comm.irecv(in[static_cast<std::size_t>(i)], 0));
    posted.arrive_and_wait();
    sent.arrive_and_wait();
    for (int i = early; i < messages; ++i) {
      works.push_back(comm.irecv(in[static_cast<std::size_t>(i)], 0));
    }
    // One that was complete when it was started is like any other.
    CHECK(works.back().wait_for(60s));
    CHECK_FALSE(works.back().cancel());
    wait_all(works);
    for (int i = 0; i < messages; ++i) {
      CHECK(in[static_cast<std::size_t>(i)] == i);
      const auto what = works[static_cast<std::size_t>(i)].received();
      REQUIRE(what);
      CHECK(what->source == 0);
      CHECK(what->count == 1);
      CHECK(what->dtype == DType::i32);
    }
  }));
}
