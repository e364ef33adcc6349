// Synchronous sends: complete once the receiver has the message.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Event;
using testing::run_ranks;

namespace {

/// From less than a header's line to what is lent.
constexpr std::array<std::size_t, 7> counts{0, 1, 3, 1000, 40000, 100000, 2000000};

std::vector<int> content(std::size_t count, int seed) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), seed);
  return data;
}

}  // namespace

TEST_CASE("a synchronous send is complete when it was received, and not before") {
  for (const std::size_t count : counts) {
    std::atomic<bool> receives{false};
    Event looked;
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const auto data = content(count, 1);
      if (comm.rank() == 0) {
        Work sending = comm.issend(data, 1);
        CHECK(!sending.wait_for(20ms));
        CHECK(!sending.test());
        CHECK(!sending.done());
        looked.set();
        sending.wait();
        CHECK(receives);
        comm.ssend(data, 1, {.tag = 2});
        comm.barrier();
      } else {
        CHECK(looked.wait());
        std::vector<int> in(count);
        static_cast<void>(comm.probe(0));
        receives = true;
        CHECK(comm.recv(in, 0) == Received{0, 0, DType::i32, count});
        CHECK(in == data);
        std::fill(in.begin(), in.end(), 0);
        CHECK(comm.recv(in, any_source, {.tag = any_tag}).tag == 2);
        CHECK(in == data);
        comm.barrier();
      }
    }));
  }
}

TEST_CASE(
    "a receive that finds a synchronous message is complete at once, and its sender hears of it") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int value = 5;
    if (comm.rank() == 0) {
      Work sending = comm.issend(value, 1, {.tag = 1});
      comm.send(value, 1, {.tag = 2});
      sending.wait();
      world.store()->set("heard", {});
    } else {
      int in = 0;
      comm.recv(value, 0, {.tag = 2});
      Work later = comm.irecv(value, 0, {.tag = 3});  // So that the progress thread is awake.
      const Work receiving = comm.irecv(in, 0, {.tag = 1});
      CHECK(receiving.done());
      CHECK(in == 5);
      world.store()->wait("heard", Clock::now() + 60s);
      later.cancel();
    }
    comm.barrier();
  }));
}

TEST_CASE("a sender hears of its synchronous message although the receiver calls nothing more") {
  for (const bool starts : {false, true}) {
    CAPTURE(starts);
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      int value = comm.rank();
      if (comm.rank() == 0) {
        comm.ssend(value, 1);
        world.store()->set("heard", {});
      } else {
        // Nothing leads back to the sender yet: the answer cannot leave at once.
        if (starts) {
          static_cast<void>(comm.probe(0));
          comm.irecv(value, 0).wait();
        } else {
          comm.recv(value, 0);
        }
        world.store()->wait("heard", Clock::now() + 60s);
      }
      comm.barrier();
    }));
  }
}

TEST_CASE("synchronous and other messages of one tag keep their order, in every direction") {
  constexpr int rounds = 40;
  for (const int size : {1, 2, 3, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int next = (comm.rank() + 1) % comm.size();
      const int last = (comm.rank() + comm.size() - 1) % comm.size();
      std::vector<std::vector<int>> out, in;
      std::vector<Work> works;
      for (int i = 0; i < rounds; ++i) {
        const std::size_t count = counts[static_cast<std::size_t>(i) % 5];
        out.push_back(content(count, comm.rank() + i));
        in.emplace_back(count, -1);
      }
      for (int i = 0; i < rounds; ++i) {
        const auto at = static_cast<std::size_t>(i);
        works.push_back(i % 3 == 0 ? comm.isend(out[at], next) : comm.issend(out[at], next));
      }
      for (auto& each : in) works.push_back(comm.irecv(each, last));
      wait_all(works);
      for (int i = 0; i < rounds; ++i) {
        const auto at = static_cast<std::size_t>(i);
        CHECK(in[at] == content(in[at].size(), last + i));
      }
    }));
  }
}

TEST_CASE("a synchronous send to oneself waits for the receive") {
  check_all(run_ranks(1, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int out = 3;
    int in = 0;
    Work receiving = comm.irecv(in, 0);
    comm.ssend(out, 0);
    receiving.wait();
    CHECK(in == 3);
    Work sending = comm.issend(out, 0);
    CHECK(!sending.test());
    CHECK(comm.recv(in, 0).source == 0);
    CHECK(sending.test());
  }));
}

TEST_CASE("the receiver may end as soon as it has the message") {
  for (const std::size_t count : counts) {
    for (const bool starts : {false, true}) {
      check_all(run_ranks(2, [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        std::vector<int> data = content(count, 1);
        if (comm.rank() == 0) return comm.ssend(data, 1);
        if (!starts) {
          comm.recv(data, 0);
        } else {
          comm.irecv(data, 0).wait();
        }
      }));
    }
  }
}

TEST_CASE("many synchronous sends at once are all told of, also where nobody talked before") {
  constexpr int messages = 300;
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<int> data(messages, 7);
    if (comm.rank() == 0) {
      for (int i = 0; i < 2 * messages; ++i) {
        int in = 0;
        comm.recv(in, any_source);
        CHECK(in == 7);
      }
      return;
    }
    std::vector<Work> works;
    for (const int& each : data) works.push_back(comm.issend(each, 0));
    wait_all(works);
  }));
}

TEST_CASE("a synchronous send that nobody receives ends at its deadline, or with its receiver") {
  Event gone;
  const auto late = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int out = 1;
    if (comm.rank() == 1) {
      CHECK(gone.wait());
      return;
    }
    try {
      comm.ssend(out, 1, {.timeout = 50ms, .tag = 4});
    } catch (const Error&) {
      gone.set();
      throw;
    }
  });
  CHECK(late[0].code == Errc::timeout);
  CHECK(late[0].text.starts_with("ssend to rank 1 (tag 4): rank 0 waited 0.05 s; absent: rank 1"));
  CHECK(late[0].mentions("ssend_test.cpp:"));

  const auto left = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const std::array out{1, 2};
    if (comm.rank() == 0) return comm.ssend(out, 1);
    static_cast<void>(comm.probe(0));
  });
  CHECK(left[0].code == Errc::peer_lost);
  CHECK(left[1].ok());
}

TEST_CASE("a synchronous send that waits for a receive of another tag: both sides tell both tags") {
  const auto late = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    const int out = 1;
    int in = 0;
    if (comm.rank() == 1) return comm.ssend(out, 0, {.timeout = 60s, .tag = 4});
    static_cast<void>(comm.probe(1, {.tag = 4}));
    static_cast<void>(comm.recv_up_to(in, 1, {.timeout = 50ms, .tag = 5}));
  });
  CHECK(late[0].code == Errc::timeout);
  CHECK(late[0].text.starts_with("recv_up_to from rank 1 (tag 5): rank 0 waited 0.05 s; absent: "));
  CHECK(late[0].mentions("; another message has come: 1 i32 element from rank 1 (tag 4) ["));
  CHECK(late[1].mentions("told by rank 0: recv_up_to from rank 1 (tag 5): "));
}

TEST_CASE("a synchronous send to oneself that nothing takes says so") {
  const auto late = run_ranks(1, [](const World& world) {
    Communicator comm(world);
    const int out = 1;
    comm.ssend(out, 0, {.timeout = 20ms});
  });
  CHECK(late[0].text.starts_with(
      "ssend to rank 0 (tag 0): rank 0 waited 0.02 s; the message is to itself, and it has no "
      "receive under way that takes it ["));
}

TEST_CASE("a receive that does not take the message tells nobody") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const std::array out{1, 2, 3};
    std::array<int, 4> in{};
    if (comm.rank() == 0) {
      Work sending = comm.issend(out, 1);
      comm.barrier();
      CHECK(!sending.wait_for(5ms));
      comm.barrier();
      sending.wait();
    } else {
      std::array<int, 2> little{};
      CHECK_THROWS_AS(comm.recv_up_to(little, 0), Error);
      Work waits = comm.irecv(in[3], 0, {.tag = 8});
      CHECK(waits.cancel());
      comm.barrier();
      comm.barrier();
      CHECK(comm.recv_up_to(in, 0).count == 3);
      CHECK(in == std::array{1, 2, 3, 0});
    }
  }));
}

TEST_CASE("what was received is received, also where the sender is told behind a long message") {
  // More than a rank keeps of another's before it is received, and what is lent.
  const auto large = content((20u << 20) / sizeof(int), 5);
  for (const int behind : {1, 30}) {
    const std::vector<int> each(large.begin(),
                                large.begin() + static_cast<std::ptrdiff_t>(large.size()) / behind);
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int other = 1 - comm.rank();
      const int out = comm.rank();
      int in = -1;
      std::vector<Work> works;
      works.push_back(comm.issend(out, other, {.tag = 1}));
      for (int i = 0; i < behind; ++i) works.push_back(comm.isend(each, other, {.tag = 2}));
      comm.recv(in, other, {.tag = 1});
      CHECK(in == other);
      std::vector<int> what(each.size());
      for (int i = 0; i < behind; ++i) {
        comm.recv(what, other, {.tag = 2});
        CHECK(what == each);
      }
      wait_all(works);
    }));
  }
}

TEST_CASE("a rank that ends after its receive has told the sender, also behind a long message") {
  const auto large = content((20u << 20) / sizeof(int), 5);
  Event ends;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 0) {
      const int out = 3;
      Work told = comm.issend(out, 1, {.tag = 1});
      std::vector<int> what(large.size());
      CHECK(ends.wait());
      comm.recv(what, 1, {.tag = 2});
      CHECK(what == large);
      told.wait();
    } else {
      Work sending = comm.isend(large, 0, {.tag = 2});
      int in = 0;
      comm.recv(in, 0, {.tag = 1});
      CHECK(in == 3);
      ends.set();
      sending.wait();
    }
  }));
}
