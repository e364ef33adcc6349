// Messages that are matched first and received then.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::error_of;
using testing::run_ranks;

namespace {

/// The last one is not parked, but held.
constexpr std::array<std::size_t, 5> counts{0, 1, 1000, 300000, 5000000};

std::vector<int> content(std::size_t count, int seed) {
  std::vector<int> data(count);
  std::iota(data.begin(), data.end(), seed);
  return data;
}

}  // namespace

TEST_CASE("a message that was matched is received by nobody else") {
  for (const std::size_t count : counts) {
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      if (comm.rank() == 1) {
        const auto first = content(count, 1), second = content(count, 2);
        std::vector<Work> works;
        works.push_back(comm.isend(first, 0, {.tag = 3}));
        works.push_back(comm.isend(second, 0, {.tag = 3}));
        wait_all(works);
        return;
      }
      Message message = comm.match(any_source, {.tag = any_tag});
      CHECK(!message.is_empty());
      CHECK(message.what() == Received{1, 3, DType::i32, count});
      std::vector<int> in(count + 1, -1), other(count, -1);
      if (count < 5000000) {
        // Behind a message that is held nothing comes.
        CHECK(comm.recv(other, 1, {.tag = 3}).count == count);
        CHECK(other == content(count, 2));
      }
      CHECK(comm.recv_matched(std::move(message), in) == Received{1, 3, DType::i32, count});
      CHECK(message.is_empty());  // NOLINT: what was received is empty.
      CHECK(message.what() == Received());
      CHECK(in.back() == -1);
      in.pop_back();
      CHECK(in == content(count, 1));
      if (count == 5000000) comm.recv(other, 1, {.tag = 3});
      CHECK(other == content(count, 2));
      CHECK(!comm.try_match(1).has_value());
    }));
  }
}

TEST_CASE("a message that is given up goes back to its place") {
  for (const int size : {1, 2, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int next = (comm.rank() + 1) % comm.size();
      const int last = (comm.rank() + comm.size() - 1) % comm.size();
      const std::array<int, 4> out{0, 1, 2, 3};
      for (const int& each : out) comm.send(each, next, {.tag = 1});
      std::optional<Message> second;
      {
        const Message first = comm.match(last, {.tag = 1});
        second = comm.match(last, {.tag = any_tag});
        CHECK(second->what().tag == 1);
      }
      int in = -1;
      comm.recv(in, last, {.tag = 1});
      CHECK(in == 0);
      second.reset();
      for (int i = 1; i < 4; ++i) {
        comm.recv(in, last, {.tag = i == 2 ? any_tag : 1});
        CHECK(in == i);
      }
      comm.barrier();
    }));
  }
}

TEST_CASE("a message that is given up is for the receive that waits for it") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() == 1) {
      const std::array out{1, 2, 3};
      comm.ssend(out, 0);
      return comm.barrier();
    }
    Message message = comm.match(1);
    std::array<int, 3> in{};
    std::array<int, 2> little{};
    Work too_little = comm.irecv_up_to(little, 1);
    Work waits = comm.irecv(in, any_source, {.tag = any_tag});
    CHECK(!waits.wait_for(1ms));
    CHECK(!comm.try_probe(1).has_value());
    message = Message();
    waits.wait();
    CHECK(in == std::array{1, 2, 3});
    CHECK(error_of([&] { too_little.wait(); })->errc() == Errc::misuse);
    comm.barrier();
  }));
}

TEST_CASE("any number of messages may be matched, and received in any order") {
  constexpr int messages = 60;
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    if (comm.rank() > 0) {
      std::vector<std::vector<int>> out;
      for (int i = 0; i < messages; ++i) {
        out.push_back(content(static_cast<std::size_t>(i * 37), comm.rank() * 1000 + i));
      }
      std::vector<Work> works;
      for (const auto& each : out) {
        works.push_back(works.size() % 2 == 0 ? comm.isend(each, 0) : comm.issend(each, 0));
      }
      wait_all(works);
      return comm.barrier();
    }
    std::vector<Message> matched;
    std::array<int, 3> seen{};
    std::vector<int> numbers;
    while (matched.size() < 2 * messages) {
      auto message = comm.try_match(any_source, {.tag = any_tag});
      matched.push_back(message ? std::move(*message) : comm.match(any_source));
      numbers.push_back(seen[static_cast<std::size_t>(matched.back().what().source)]++);
    }
    for (std::size_t i = matched.size(); i-- > 0;) {
      const Received what = matched[i].what();
      std::vector<int> in(what.count);
      comm.recv_matched(std::move(matched[i]), in);
      CHECK(in ==
            content(static_cast<std::size_t>(numbers[i] * 37), what.source * 1000 + numbers[i]));
    }
    comm.barrier();
  }));
}

TEST_CASE("what is wrong with receiving a matched message is said, and leaves it as it was") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world), other(world, "other");
    comm.set_timeout(60s);
    const std::array out{1, 2, 3};
    std::array<int, 3> in{};
    std::array<int, 2> little{};
    std::array<float, 3> floats{};
    if (comm.rank() == 1) {
      comm.send(out, 0, {.tag = 6});
      other.barrier();
      return comm.barrier();
    }
    Message message = comm.match(1, {.tag = 6});
    const auto refused = [&](Communicator& by, Message& what, TensorView into,
                             const std::string& words) {
      const auto error = error_of([&] { by.recv_matched(std::move(what), into); });
      REQUIRE(error);
      CHECK(error->errc() == Errc::misuse);
      CHECK_MESSAGE(std::string(error->what()).find(words) != std::string::npos, error->what());
    };
    refused(comm, message, little, "the message has 3 elements of i32, and the buffer has room");
    refused(comm, message, floats, "the message has 3 elements of i32, and the buffer has room");
    refused(other, message, in, "matched by another communicator");
    refused(comm, message, TensorView(nullptr, 3, DType::i32), "null");
    Message empty;
    refused(comm, empty, in, "the message is empty");
    CHECK(!message.is_empty());
    comm.recv_matched(std::move(message), in);
    CHECK(in == out);
    refused(comm, message, in, "the message is empty");  // NOLINT: what was received is empty.
    other.barrier();
    comm.barrier();
  }));
}

TEST_CASE("a matched message outlives its communicator") {
  std::optional<Message> message;
  {
    const World world(WorldInfo{}, std::make_shared<LocalStore>());
    Communicator comm(world);
    const int out = 1;
    comm.send(out, 0);
    message = comm.match(0);
    Communicator moved = std::move(comm);
    int in = 0;
    moved.send(out, 0);
    Message second = moved.match(0);
    CHECK(moved.recv_matched(std::move(second), in).count == 1);
  }
  CHECK(message->what().count == 1);
  message.reset();
}

TEST_CASE("a probe for which nothing comes ends at its own deadline, and breaks nothing") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int number = 5;
    if (comm.rank() == 0) {
      constexpr MessageOptions soon{.timeout = 30ms};
      const std::function<void()> probes[] = {
          [&] { static_cast<void>(comm.match(1, soon)); },
          [&] { static_cast<void>(comm.probe(1, soon)); },
          [&] { comm.start_probe(1, soon).wait(); },
      };
      for (const auto& probe : probes) {
        const auto error = error_of(probe);
        REQUIRE(error);
        CHECK(error->errc() == Errc::timeout);
        CHECK(std::string_view(error->what()).find(" from rank 1 (tag 0)") !=
              std::string_view::npos);
      }
      comm.send(number, 1);
      CHECK(comm.match(1).what().count == 1);
      comm.recv(number, 1);
    } else {
      comm.recv(number, 0);
      comm.send(number, 0);
    }
    comm.barrier();
  }));
}

TEST_CASE("a probe that ends at its communicator's deadline breaks it as other calls do") {
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(comm.rank() == 0 ? Clock::duration(30ms) : Clock::duration(60s));
    if (comm.rank() == 0) {
      const auto error = error_of([&] { static_cast<void>(comm.match(1)); });
      REQUIRE(error);
      CHECK(error->errc() == Errc::timeout);
    }
    comm.barrier();
  });
  // The one that waits in the barrier hears of it.
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::timeout);
    CHECK(outcome.mentions("match from rank 1 (tag 0)"));
  }
}
