// Probes that were started: what they find, and how they end.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/unit/collectives/inbox_slot.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::error_of;
using testing::Event;
using testing::run_ranks;

namespace {

/// A probe of the inbox alone.
struct Probe {
  explicit Probe(int from, int tag = any_tag) {
    receive.kind = transport::Kind::message;
    receive.communicator = 1;
    receive.from = from;
    receive.tag = tag;
    receive.sources = all;
    receive.is_probe = true;
  }
  bool has_found(std::size_t bytes) const {
    return receive.state == transport::Receive::State::done && receive.header.count == bytes;
  }
  std::array<int, 3> all{0, 1, 2};
  transport::Receive receive;
};

}  // namespace

TEST_CASE("a probe finds what no receive takes, whether it is parked or held") {
  for (const std::size_t bytes : {0u, 3u, 100u, 5000u}) {
    transport::Inbox inbox(1000);
    Probe exact(1, 4), any(any_source), other_tag(1, 5), other_rank(2);
    transport::Slot slot(bytes, 1, 4);
    const std::array probes{&exact, &any, &other_tag, &other_rank};
    for (Probe* each : probes) inbox.post(each->receive);
    CHECK(inbox.is_awaited());
    inbox.post(slot.receive);
    inbox.begin(1, transport::data_header(bytes, 4));
    transport::feed(inbox, 1, bytes, 1);
    CHECK(slot.done());
    for (Probe* each : probes) CHECK(each->receive.pending());

    inbox.begin(1, transport::data_header(bytes, 4));
    CHECK(exact.has_found(bytes));
    CHECK(any.has_found(bytes));
    CHECK(any.receive.source == 1);
    CHECK(other_tag.receive.pending());
    CHECK(other_rank.receive.pending());
    Probe late(any_source, 4);
    inbox.post(late.receive);
    CHECK(late.has_found(bytes));
    // It has taken nothing.
    inbox.post(slot.receive);
    transport::feed(inbox, 1, bytes, 1);
    CHECK(slot.done());
    inbox.withdraw(other_tag.receive);
    inbox.withdraw(other_rank.receive);
    CHECK(!inbox.is_awaited());
  }
}

TEST_CASE("a probe finds a message that was too long for the receive, or is put back") {
  transport::Inbox inbox;
  Probe first(1);
  transport::Slot little(2, 1);
  little.receive.up_to = true;
  inbox.post(little.receive);
  inbox.post(first.receive);
  inbox.begin(1, transport::data_header(3));
  CHECK(little.receive.state == transport::Receive::State::too_long);
  CHECK(first.has_found(3));
  transport::feed(inbox, 1, 3, 1);

  const auto apart = inbox.set_apart(1, 1, any_tag, {});
  Probe second(1), third(any_source);
  inbox.post(second.receive);
  CHECK(second.receive.pending());
  inbox.put_back(*apart);
  CHECK(second.has_found(3));
  inbox.post(third.receive);
  CHECK(third.has_found(3));
}

TEST_CASE("a started probe says what has come, or will come") {
  for (const std::size_t count : {0u, 1u, 1000u, 300000u, 5000000u}) {
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int other = 1 - comm.rank();
      const std::vector<double> out(count, comm.rank());
      Work early = comm.start_probe(any_source, {.tag = any_tag});
      CHECK(!early.received());
      comm.barrier();
      const Work sending = comm.isend(out, other, {.tag = 7});
      early.wait();
      const Received what{other, 7, DType::f64, count};
      CHECK(early.received() == what);
      Work late = comm.start_probe(other, {.tag = 7});
      CHECK(late.wait_for(60s));
      CHECK(late.received() == what);
      CHECK(!late.cancel());
      std::vector<double> in(count, -1);
      CHECK(comm.recv(in, other, {.tag = 7}) == what);
      CHECK(in == std::vector<double>(count, other));
      CHECK(early.received() == what);
      Work none = comm.start_probe(other, {.tag = 7});
      CHECK(!none.test());
      CHECK(!none.wait_for(1ms));
      CHECK(none.cancel());
      CHECK(!none.received());
      const auto error = error_of([&] { none.wait(); });
      REQUIRE(error);
      CHECK(error->errc() == Errc::aborted);
      const std::string expected =
          "probe from rank " + std::to_string(other) + " (tag 7) was cancelled";
      CHECK_MESSAGE(std::string(error->what()).find(expected) != std::string::npos,
                    std::string(error->what()));
      comm.barrier();
    }));
  }
}

TEST_CASE("probes and receives are waited for together") {
  for (const int size : {2, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      constexpr int rounds = 20;
      if (comm.rank() > 0) {
        for (int i = 0; i < rounds; ++i) {
          const std::vector<int> out(static_cast<std::size_t>(i), comm.rank());
          comm.send(out, 0, {.tag = 1});
          comm.send(i, 0, {.tag = 2});
        }
        return;
      }
      // Each other rank sends a message of unknown length, then a number: both are expected at
      // once.
      std::vector<Work> works;
      std::vector<int> numbers(static_cast<std::size_t>(comm.size()), -1);
      std::vector<int> lengths(numbers.size(), 0), values(numbers.size(), 0);
      for (int other = 1; other < comm.size(); ++other) {
        works.push_back(comm.start_probe(other, {.tag = 1}));
        works.push_back(comm.irecv(numbers[static_cast<std::size_t>(other)], other, {.tag = 2}));
      }
      while (const auto i = wait_any(works, 60s)) {
        const auto other = *i / 2 + 1;
        const int rank = static_cast<int>(other);
        works[*i].wait();
        if (*i % 2 == 0) {
          const auto what = works[*i].received();
          REQUIRE(what);
          CHECK(what->source == rank);
          CHECK(what->count == static_cast<std::size_t>(lengths[other]));
          std::vector<int> in(what->count);
          comm.recv(in, what->source, {.tag = what->tag});
          CHECK(in == std::vector<int>(in.size(), rank));
          works[*i] = {};
          if (++lengths[other] < rounds) works[*i] = comm.start_probe(rank, {.tag = 1});
        } else {
          CHECK(numbers[other] == values[other]);
          works[*i] = {};
          if (++values[other] < rounds) works[*i] = comm.irecv(numbers[other], rank, {.tag = 2});
        }
      }
      for (std::size_t other = 1; other < lengths.size(); ++other) {
        CHECK(lengths[other] == rounds);
        CHECK(values[other] == rounds);
      }
    }));
  }
}

TEST_CASE("of probes and receives those are found that are complete, and whether all are") {
  Event looked, emptied;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Communicator other = comm.duplicate();
    constexpr int probed = 1, received = 2, probed_late = 3, received_late = 4;
    const std::array<int, 3> out{7, 8, 9};
    if (comm.rank() == 1) {
      CHECK(looked.wait());
      other.send(out, 0, {.tag = probed});
      comm.send(out[0], 0, {.tag = received});
      CHECK(emptied.wait());
      comm.send(out[1], 0, {.tag = received_late});
      other.send(out[2], 0, {.tag = probed_late});
      return comm.barrier();
    }
    using Indices = std::vector<std::size_t>;
    std::array<int, 2> in{};
    std::vector<Work> works;
    works.push_back(other.start_probe(any_source, {.tag = probed}));
    works.push_back(comm.irecv(in[0], 1, {.tag = received}));
    works.emplace_back();
    works.push_back(other.start_probe(1, {.tag = probed_late}));
    works.push_back(comm.irecv(in[1], any_source, {.tag = received_late}));
    CHECK(wait_some(works, 0s).empty());
    CHECK(test_any(works) == std::nullopt);
    CHECK(!test_all(works));
    looked.set();
    Indices complete;
    while (complete.size() < 2) complete = wait_some(works, 60s);
    CHECK(complete == Indices{0, 1});
    CHECK(works[0].received() == Received{1, probed, DType::i32, 3});
    CHECK(works[1].received() == Received{1, received, DType::i32, 1});
    CHECK(wait_some(works, 0s) == complete);
    CHECK(test_any(works) == 0);
    CHECK(!test_all(works));
    for (const std::size_t i : complete) works[i] = {};
    CHECK(wait_some(works, 1ms).empty());
    emptied.set();
    while (!test_all(works)) continue;
    CHECK(wait_some(works, 60s) == Indices{3, 4});
    wait_all(works);
    CHECK(works[3].received() == Received{1, probed_late, DType::i32, 1});
    CHECK(in == std::array{7, 8});
    // The probes have taken nothing.
    std::array<int, 3> first{};
    other.recv(first, 1, {.tag = probed});
    CHECK(first == out);
    other.recv(in[0], 1, {.tag = probed_late});
    CHECK(in[0] == 9);
    comm.barrier();
  }));
}

TEST_CASE(
    "a message is the receive's, and the next one the probe's, in whatever order they began") {
  for (const bool probe_first : {true, false}) {
    CAPTURE(probe_first);
    Event found;
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int first = 1, second = 2;
      if (comm.rank() == 1) {
        comm.barrier();
        comm.send(first, 0, {.tag = 5});
        CHECK(found.wait());
        comm.send(second, 0, {.tag = 5});
        return;
      }
      int in = 0;
      std::array<Work, 2> works;
      const auto probe = [&] { works[0] = comm.start_probe(1, {.tag = 5}); };
      if (probe_first) probe();
      works[1] = comm.irecv(in, 1, {.tag = 5});
      if (!probe_first) probe();
      comm.barrier();
      CHECK(wait_some(works, 60s) == std::vector<std::size_t>{1});
      CHECK(in == 1);
      CHECK(!test_all(works));
      found.set();
      wait_all(works);
      CHECK(works[0].received()->count == 1);
      comm.recv(in, 1, {.tag = 5});
      CHECK(in == 2);
    }));
  }
}

TEST_CASE("all are waited for though a probe among them fails, whose error is thrown then") {
  Event cancelled;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 1) {
      CHECK(cancelled.wait());
      const int one = 1;
      comm.send(one, 0, {.tag = 1});
      return comm.barrier();
    }
    int in = 0;
    std::array<Work, 2> works{comm.start_probe(1, {.tag = 2}), comm.irecv(in, 1, {.tag = 1})};
    CHECK(works[0].cancel());
    CHECK(test_any(works) == 0);
    CHECK(!test_all(works));
    cancelled.set();
    const auto error = error_of([&] { wait_all(works); });
    REQUIRE(error);
    CHECK(error->errc() == Errc::aborted);
    CHECK(in == 1);
    CHECK(test_all(works));
    CHECK(wait_some(works, 60s) == std::vector<std::size_t>{0, 1});
    comm.barrier();
  }));
}

TEST_CASE("a probe's message makes the descriptor readable") {
  Event polls;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 1) {
      polls.wait();
      const int one = 1;
      comm.send(one, 0);
      return comm.barrier();
    }
    Work probe = comm.start_probe(1);
    const int descriptor = comm.descriptor();
    for (bool has_told = false; !probe.test();) {
      std::uint64_t count = 0;
      while (::read(descriptor, &count, sizeof count) > 0) continue;
      if (probe.test()) break;
      if (!std::exchange(has_told, true)) polls.set();
      pollfd readable{descriptor, POLLIN, 0};
      REQUIRE(::poll(&readable, 1, 60000) == 1);
    }
    CHECK(probe.received()->count == 1);
    int in = 0;
    comm.recv(in, 1);
    comm.barrier();
  }));
}

TEST_CASE("a probe ends with an error where nothing can come, and takes no wrong arguments") {
  SUBCASE("wrong arguments") {
    check_all(run_ranks(2, [](const World& world) {
      Communicator comm(world);
      for (const auto& [from, tag] : {std::pair(2, 0), std::pair(-5, 0), std::pair(0, -2)}) {
        const auto error = error_of([&, from = from, tag = tag] {
          const Work probe = comm.start_probe(from, {.tag = tag});
        });
        REQUIRE(error);
        CHECK(error->errc() == Errc::misuse);
      }
      comm.barrier();
    }));
  }
  SUBCASE("nobody sends") {
    const auto outcomes = run_ranks(2, [](const World& world) {
      Communicator comm(world);
      if (comm.rank() == 0) {
        comm.set_timeout(50ms);
        Work probe = comm.start_probe(1, {.tag = 3});
        probe.wait();
      }
      comm.set_timeout(60s);
      comm.barrier();
    });
    CHECK(outcomes[0].code == Errc::timeout);
    CHECK(outcomes[0].mentions("probe from rank 1 (tag 3)"));
  }
  SUBCASE("the other rank has ended its communicator") {
    const auto outcomes = run_ranks(2, [](const World& world) {
      Communicator comm(world);
      // A closed connection tells it; in shared memory nothing does, while that rank's process
      // lives.
      comm.set_timeout(testing::ranks_share_memory() ? 2s : 60s);
      comm.barrier();
      if (comm.rank() == 1) return;
      Work probe = comm.start_probe(1);
      probe.wait();
    });
    CHECK(outcomes[0].code.has_value());
    CHECK(outcomes[0].mentions("probe from rank 1"));
  }
  SUBCASE("this rank ends its communicator") {
    check_all(run_ranks(2, [](const World& world) {
      Work probe;
      {
        Communicator comm(world);
        comm.set_timeout(60s);
        probe = comm.start_probe(any_source);
        comm.barrier();
      }
      CHECK(probe.done());
      const auto error = error_of([&] { probe.wait(); });
      REQUIRE(error);
      CHECK(error->errc() == Errc::aborted);
    }));
  }
}

TEST_CASE("a probe in a world of one finds what a rank sends to itself") {
  check_all(run_ranks(1, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Work probe = comm.start_probe(any_source, {.tag = any_tag});
    CHECK(!probe.done());
    const int five = 5;
    comm.send(five, 0, {.tag = 2});
    CHECK(probe.test());
    CHECK(probe.received() == Received{0, 2, DType::i32, 1});
    int in = 0;
    comm.recv(in, 0, {.tag = 2});
    CHECK(in == 5);
  }));
}
