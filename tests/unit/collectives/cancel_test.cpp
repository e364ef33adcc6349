// Receives that are taken back.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/raw_rank.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::error_of;
using testing::Event;
using testing::run_ranks;

TEST_CASE("a receive that was taken back gets nothing, and breaks nothing") {
  for (const int size : {1, 2, 3}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world, "all");
      comm.set_timeout(60s);
      const int next = (comm.rank() + 1) % comm.size();
      const int last = (comm.rank() + comm.size() - 1) % comm.size();
      const int out = comm.rank() + 10;
      std::array<int, 3> in{};
      Work first = comm.irecv(in[0], last, {.tag = 4});
      Work any = comm.irecv_up_to(in[1], any_source, {.tag = any_tag});
      Work second = comm.irecv(in[2], last, {.tag = 4});
      CHECK(first.cancel());
      CHECK(any.cancel());
      CHECK(!first.cancel());
      CHECK(first.done());
      CHECK(first.test());
      CHECK(first.wait_for(0s));
      CHECK(first.received() == std::nullopt);
      for (int i = 0; i < 2; ++i) {
        const auto error = error_of([&] { first.wait(); });
        REQUIRE(error);
        CHECK(error->errc() == Errc::aborted);
        const std::string text = error->what();
        CHECK(text.find("recv from rank " + std::to_string(last) +
                        " (tag 4) of 'all' was cancelled [cancel_test.cpp:") == 0);
      }
      CHECK(error_of([&] { any.wait(); })->errc() == Errc::aborted);
      comm.barrier();
      comm.send(out, next, {.tag = 4});
      second.wait();
      CHECK(in == std::array{0, 0, last + 10});
      CHECK(!second.cancel());
      comm.barrier();
    }));
  }
}

TEST_CASE("what has come, or is on its way into its buffer, is not taken back") {
  Event cancelled;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    // Long enough that it comes in parts.
    std::vector<int> out(4 << 20, 6), in(out.size());
    if (comm.rank() == 1) {
      Work sending = comm.isend(out, 0);
      comm.barrier();
      sending.wait();
      return comm.barrier();
    }
    Work receiving = comm.irecv(in, 1);
    comm.barrier();
    if (receiving.cancel()) {
      // Nothing of it had come yet: the next receive gets it.
      receiving = Work();
      receiving = comm.irecv(in, 1);
    }
    receiving.wait();
    CHECK(!receiving.cancel());
    receiving.wait();
    CHECK(in == out);
    comm.barrier();
  }));
}

namespace {

/// Rank 0 of two, of which the other one sends what the test says.
struct Beside {
  static WorldInfo info(int rank) {
    WorldInfo info;
    info.rank = rank;
    info.size = 2;
    info.node_rank = rank;
    info.node_count = 2;
    info.local_size = 1;
    info.job = "beside";
    return info;
  }
  /// A part of the message has come, and only that.
  Beside() {
    comm.set_timeout(60s);
    other.say(BytesView(message).first(begun));
    while (!comm.try_probe(1)) continue;
  }
  /// The receive that takes it, whose buffer it now goes to.
  Work receive() { return comm.irecv(in, 1); }
  void say_the_rest() const { other.say(BytesView(message).subspan(begun)); }

  static constexpr std::size_t bytes = 1000, begun = sizeof(transport::Header) + 10;
  const std::shared_ptr<LocalStore> store = std::make_shared<LocalStore>();
  Communicator comm{World(info(0), store), "beside"};
  testing::RawRank other{testing::address_of(*store, 0), info(1)};
  const Bytes message = testing::raw_message(bytes, 6);
  std::vector<std::uint8_t> in = std::vector<std::uint8_t>(bytes);
};

}  // namespace

TEST_CASE("a receive of which a part has come is not taken back, and gets the rest") {
  Beside beside;
  Work work = beside.receive();
  for (int i = 0; i < 2; ++i) {
    CHECK(!work.cancel());
    CHECK(!work.test());
    CHECK(!work.done());
    CHECK(!work.wait_for(1ms));
    CHECK(!work.received());
    CHECK(work.error() == nullptr);
  }
  // Nobody else has it.
  CHECK(!beside.comm.try_probe(1));
  beside.say_the_rest();
  work.wait();
  CHECK(!work.cancel());
  CHECK(work.received() == Received{1, 0, DType::u8, Beside::bytes});
  CHECK(beside.in == std::vector<std::uint8_t>(Beside::bytes, 6));
}

TEST_CASE("a part of a message is no whole one, where its sender ends or its receiver does") {
  SUBCASE("the sender ends") {
    Beside beside;
    Work work = beside.receive();
    CHECK(!work.cancel());
    beside.other.hang_up();
    while (!work.test()) continue;
    CHECK(!work.cancel());
    CHECK(!work.received());
    const auto error = error_of([&] { work.wait(); });
    REQUIRE(error);
    CHECK(error->errc() == Errc::peer_lost);
    CHECK(!work.cancel());
  }
  SUBCASE("the receiver's communicator ends") {
    Work work;
    {
      Beside beside;
      work = beside.receive();
      CHECK(!work.cancel());
      Communicator ended = std::move(beside.comm);
    }
    CHECK(work.done());
    CHECK(!work.cancel());
    CHECK(!work.received());
    CHECK(error_of([&] { work.wait(); })->errc() == Errc::aborted);
  }
}

TEST_CASE("an exception waits for a receive of which a part has come") {
  Beside beside;
  std::jthread rest;
  const auto fails = [&] {
    const Work work = beside.receive();
    rest = std::jthread([&] { beside.say_the_rest(); });
    throw std::runtime_error("a bad file");
  };
  CHECK_THROWS_WITH(fails(), "a bad file");
  CHECK(beside.in == std::vector<std::uint8_t>(Beside::bytes, 6));
}

TEST_CASE("messages go on to the receives behind those that were taken back") {
  constexpr int messages = 200;
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int other = 1 - comm.rank();
    std::vector<int> in(2 * messages, -1), out(messages);
    std::vector<Work> works;
    for (int& each : in) works.push_back(comm.irecv(each, other));
    for (std::size_t i = 0; i < in.size(); i += 2) CHECK(works[i].cancel());
    comm.barrier();
    for (int i = 0; i < messages; ++i) {
      out[static_cast<std::size_t>(i)] = i;
      comm.send(out[static_cast<std::size_t>(i)], other);
    }
    for (std::size_t i = 1; i < in.size(); i += 2) {
      works[i].wait();
      CHECK(in[i] == static_cast<int>(i / 2));
      CHECK(in[i - 1] == -1);
    }
    comm.barrier();
  }));
}

TEST_CASE("an exception that leaves a receive behind is not held up by it") {
  Event caught;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::array<int, 2> in{};
    if (comm.rank() == 0) {
      const auto fails = [&] {
        Work never = comm.irecv(in[0], 1, {.tag = 1});
        Work any = comm.irecv(in[0], any_source, {.tag = 2});
        throw std::runtime_error("a bad file");
      };
      CHECK_THROWS_WITH(fails(), "a bad file");
      caught.set();
    } else {
      REQUIRE(caught.wait());
      const int out = 7;
      comm.send(out, 0, {.tag = 1});
    }
    // The message is that of the next receive, and the communicator is whole.
    if (comm.rank() == 0) comm.recv(in[1], 1, {.tag = 1});
    CHECK(in[0] == 0);
    if (comm.rank() == 0) CHECK(in[1] == 7);
    comm.barrier();
  }));
}

TEST_CASE("nothing else is taken back, and what is none is told so") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int other = 1 - comm.rank();
    int x = 1;
    const int little = 2;
    std::vector<int> out(1 << 20, 1), in(out.size());
    Work sum = comm.start_all_reduce(x);
    Work large = comm.isend(out, other), small = comm.isend(little, other, {.tag = 1});
    for (Work* work : {&sum, &large, &small}) {
      const auto error = error_of([&] { work->cancel(); });
      REQUIRE(error);
      CHECK(error->errc() == Errc::unsupported);
      CHECK(std::string(error->what()).find("cancel is for started receives") == 0);
    }
    CHECK(!Work().cancel());
    Work moved = comm.irecv(in, other);
    Work work = std::move(moved);
    CHECK(!moved.cancel());  // NOLINT: what was moved from is empty.
    sum.wait();
    work.wait();
    int small_in = 0;
    comm.recv(small_in, other, {.tag = 1});
    wait_all(std::array{&large, &small});
    comm.barrier();
  }));
}

TEST_CASE("works that were taken back outlive their communicator, and their children's processes") {
  std::vector<Work> works;
  int in = 0;
  {
    const World world(WorldInfo{}, std::make_shared<LocalStore>());
    Communicator comm(world);
    for (int i = 0; i < 2; ++i) works.push_back(comm.irecv(in, 0));
    CHECK(works[0].cancel());
    const pid_t child = ::fork();
    if (child == 0) {
      const auto error = error_of([&] { works[1].cancel(); });
      ::_exit(error && error->errc() == Errc::misuse ? 0 : 1);
    }
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(!works[1].cancel());
  CHECK(error_of([&] { works[0].wait(); })->errc() == Errc::aborted);
  CHECK(error_of([&] { works[1].wait(); })->errc() == Errc::aborted);
}
