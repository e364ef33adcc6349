// Messages that are received in another order than they were sent, whatever their sizes: more of
// them than are parked, or one that is larger than that.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::require;
using testing::run_ranks;

namespace {

constexpr std::size_t large_count = 5u << 20;  ///< 20 MiB: more than may be parked.
constexpr std::size_t mebi_count = (1u << 20) / sizeof(int);

std::vector<int> filled(std::size_t count, int value) { return std::vector<int>(count, value); }

bool is_filled(const std::vector<int>& data, int value) {
  return data.front() == value && data.back() == value && data[data.size() / 2] == value;
}

/// Rank 0 sends a large message, then a small one of another tag, which rank 1 receives first by
/// this call; it may have matched the large one before.
void small_one_first(const std::function<void(Communicator&, int& small)>& receive,
                     bool matches = false) {
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 0) {
      const auto large = filled(large_count, 7);
      const int small = 5;
      Work sending = comm.isend(large, 1, {.tag = 1});
      comm.send(small, 1, {.tag = 2});
      sending.wait();
    } else {
      Message matched = matches ? comm.match(0, {.tag = 1}) : Message();
      int small = 0;
      receive(comm, small);
      require(small == 5, "the small message");
      auto large = filled(large_count, 0);
      if (matches) {
        comm.recv_matched(std::move(matched), large);
      } else {
        comm.recv(large, 0, {.tag = 1});
      }
      require(is_filled(large, 7), "the large message");
    }
    comm.barrier();
  }));
}

}  // namespace

TEST_CASE("a message is received from behind one that is too large to be parked") {
  SUBCASE("by recv") {
    small_one_first([](Communicator& comm, int& small) { comm.recv(small, 0, {.tag = 2}); });
  }
  SUBCASE("from anybody") {
    small_one_first(
        [](Communicator& comm, int& small) { comm.recv(small, any_source, {.tag = 2}); });
  }
  SUBCASE("by irecv and test") {
    small_one_first([](Communicator& comm, int& small) {
      Work work = comm.irecv(small, 0, {.tag = 2});
      while (!work.test()) continue;
    });
  }
  SUBCASE("by irecv and wait_any") {
    small_one_first([](Communicator& comm, int& small) {
      std::array works{comm.irecv(small, 0, {.tag = 2})};
      require(wait_any(works, 60s) == 0, "wait_any");
    });
  }
  SUBCASE("by probe") {
    small_one_first([](Communicator& comm, int& small) {
      require(comm.probe(0, {.tag = 2}).count == 1, "probe");
      comm.recv(small, 0, {.tag = 2});
    });
  }
  SUBCASE("by try_probe, again and again") {
    small_one_first([](Communicator& comm, int& small) {
      while (!comm.try_probe(any_source, {.tag = 2})) continue;
      comm.recv(small, 0, {.tag = 2});
    });
  }
  SUBCASE("by try_match, again and again") {
    small_one_first([](Communicator& comm, int& small) {
      auto message = comm.try_match(0, {.tag = 2});
      while (!message) message = comm.try_match(0, {.tag = 2});
      comm.recv_matched(std::move(*message), small);
    });
  }
  SUBCASE("while the large one is matched") {
    small_one_first([](Communicator& comm, int& small) { comm.recv(small, 0, {.tag = 2}); }, true);
  }
}

/// Rank 0 waits for both of its receives, the first of which needs that the second is complete,
/// behind a large message that it receives later.
static void both_whatever_the_order(const std::function<void(std::array<Work, 2>&)>& wait) {
  check_all(run_ranks(3, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int first = 0, second = 0;
    auto large = filled(large_count, comm.rank() == 1 ? 7 : 0);
    if (comm.rank() == 0) {
      std::array works{comm.irecv(first, 2, {.tag = 1}), comm.irecv(second, 1, {.tag = 2})};
      wait(works);
      require(first == 3 && second == 5, "the small messages");
      comm.recv(large, 1, {.tag = 9});
      require(is_filled(large, 7), "the large message");
    } else if (comm.rank() == 1) {
      second = 5;
      Work sending = comm.isend(large, 0, {.tag = 9});
      comm.ssend(second, 0, {.tag = 2});
      comm.send(second, 2);
      sending.wait();
    } else {
      comm.recv(second, 1);
      first = 3;
      comm.send(first, 0, {.tag = 1});
    }
    comm.barrier();
  }));
}

TEST_CASE("receives are waited for in any order, behind a message that is too large to be parked") {
  SUBCASE("by wait") {
    both_whatever_the_order([](auto& works) {
      for (Work& work : works) work.wait();
    });
  }
  SUBCASE("by wait_all") {
    both_whatever_the_order([](auto& works) { wait_all(works); });
  }
  SUBCASE("by test_all") {
    both_whatever_the_order([](auto& works) {
      while (!test_all(works)) continue;
    });
  }
  SUBCASE("by test of the first") {
    both_whatever_the_order([](auto& works) {
      while (!works[0].test()) continue;
      works[1].wait();
    });
  }
}

TEST_CASE("more than may be parked is received in the reverse order") {
  check_all(run_ranks(2, [](const World& world) {
    constexpr int messages = 40;
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<std::vector<int>> data;
    std::vector<Work> works;
    for (int tag = 0; tag < messages; ++tag) {
      data.push_back(filled(mebi_count, comm.rank() == 0 ? tag : -1));
      if (comm.rank() == 0) works.push_back(comm.isend(data.back(), 1, {.tag = tag}));
    }
    for (int tag = messages - 1; tag >= 0 && comm.rank() == 1; --tag) {
      auto& into = data[static_cast<std::size_t>(tag)];
      comm.recv(into, 0, {.tag = tag});
      require(is_filled(into, tag), "message " + std::to_string(tag));
    }
    wait_all(works);
    comm.barrier();
  }));
}

TEST_CASE("a collective goes on behind a large message that is received after it") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int next = (comm.rank() + 1) % comm.size();
    const int last = (comm.rank() + comm.size() - 1) % comm.size();
    const auto out = filled(large_count, comm.rank());
    auto in = filled(large_count, -1);
    Work sending = comm.isend(out, next);
    comm.barrier();
    int sum = 1;
    comm.all_reduce(sum);
    require(sum == comm.size(), "the sum");
    Work receiving = comm.irecv(in, last);
    sending.wait();
    receiving.wait();
    require(is_filled(in, last), "the large message");
  }));
}

TEST_CASE("the word that a synchronous message was taken is heard behind a large one") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int small = 5;
    auto large = filled(large_count, comm.rank() == 0 ? 7 : 0);
    if (comm.rank() == 0) {
      Work sending = comm.isend(large, 1);
      comm.recv(small, 1, {.tag = 3});
      comm.recv(small, 1, {.tag = 4});
      sending.wait();
    } else {
      comm.ssend(small, 0, {.tag = 3});
      Work work = comm.issend(small, 0, {.tag = 4});
      while (!work.test()) continue;
      comm.recv(large, 0);
      require(is_filled(large, 7), "the large message");
    }
    comm.barrier();
  }));
}

/// Rank 0 waits for its synchronous messages, the first of which is received when the second has
/// been; the word of that comes behind a large message that rank 0 receives later.
static void both_sent_whatever_the_order(
    const std::function<void(Communicator&, std::array<Work, 2>&)>& wait) {
  check_all(run_ranks(3, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int value = 5;
    auto large = filled(large_count, comm.rank() == 2 ? 7 : 0);
    if (comm.rank() == 0) {
      std::array works{comm.issend(value, 1, {.tag = 1}), comm.issend(value, 2, {.tag = 2})};
      wait(comm, works);
      comm.recv(large, 2, {.tag = 9});
      require(is_filled(large, 7), "the large message");
    } else if (comm.rank() == 1) {
      comm.recv(value, 2);
      comm.recv(value, 0, {.tag = 1});
      comm.send(value, 0, {.tag = 3});
    } else {
      Work sending = comm.isend(large, 0, {.tag = 9});
      comm.recv(value, 0, {.tag = 2});
      comm.send(value, 1);
      sending.wait();
    }
    if (comm.rank() == 0) comm.recv(value, 1, {.tag = 3});
    comm.barrier();
  }));
}

TEST_CASE("synchronous messages are waited for in any order, behind a message that is too large") {
  SUBCASE("by wait") {
    both_sent_whatever_the_order([](Communicator&, auto& works) {
      for (Work& work : works) work.wait();
    });
  }
  SUBCASE("by wait_all") {
    both_sent_whatever_the_order([](Communicator&, auto& works) { wait_all(works); });
  }
  SUBCASE("by test_all") {
    both_sent_whatever_the_order([](Communicator&, auto& works) {
      while (!test_all(works)) continue;
    });
  }
  SUBCASE("by wait_any") {
    both_sent_whatever_the_order([](Communicator&, auto& works) {
      require(wait_any(works, 60s).has_value(), "wait_any finds none");
      wait_all(works);
    });
  }
  SUBCASE("by a call that waits for something else") {
    both_sent_whatever_the_order([](Communicator& comm, auto& works) {
      static_cast<void>(comm.probe(1, {.tag = 3}));
      wait_all(works);
    });
  }
}

TEST_CASE("a started collective is passed by a message that was sent after it") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    Communicator other = comm.duplicate();
    comm.set_timeout(60s);
    other.set_timeout(60s);
    auto large = filled(large_count, comm.rank() == 0 ? 7 : 0);
    int small = comm.rank() == 0 ? 5 : 0;
    Work started;
    if (comm.rank() == 0) {
      started = other.start_broadcast(large, 0);
      comm.send(small, 1);
    } else {
      comm.recv(small, 0);
      started = other.start_broadcast(large, 0);
    }
    started.wait();
    require(small == 5 && is_filled(large, 7), "what was sent");
    comm.barrier();
  }));
}

TEST_CASE("a communicator that ends amid a message leaves its parent's way whole") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    auto large = filled(large_count, comm.rank() == 0 ? 7 : 0);
    int small = comm.rank() == 0 ? 5 : 0;
    Work sending;
    {
      Communicator child = comm.duplicate();
      if (comm.rank() == 0) {
        sending = child.isend(large, 1);
      } else {
        child.recv(large, 0);
      }
    }
    if (comm.rank() == 0) {
      sending.wait();
      comm.send(small, 1);
    } else {
      comm.recv(small, 0);
      require(small == 5 && is_filled(large, 7), "what was sent");
    }
    comm.barrier();
  }));
}
