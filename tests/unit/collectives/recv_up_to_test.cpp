// Receives that take messages of at most so many elements, and what a Work says that it received.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <array>
#include <complex>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::error_of;
using testing::run_ranks;

namespace {

/// From less than a header's line to what is lent.
constexpr std::array<std::size_t, 9> counts{0, 1, 2, 7, 33, 1000, 5000, 40000, 200000};

template <class T>
std::vector<T> content(std::size_t count, int seed) {
  std::vector<T> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<T>(static_cast<int>(i % 100) + seed);
  }
  return data;
}

/// The error of a call that fails; none where it does not.
bool mentions(const std::optional<Error>& error, const std::string& part) {
  return error && std::string(error->what()).find(part) != std::string::npos;
}

template <class T>
void goes_around(const World& world) {
  Communicator comm(world);
  comm.set_timeout(60s);
  const int next = (comm.rank() + 1) % comm.size();
  const int last = (comm.rank() + comm.size() - 1) % comm.size();
  for (const std::size_t count : counts) {
    for (const std::size_t room : {count, count + 1, 2 * count + 100}) {
      const std::vector<T> out = content<T>(count, comm.rank());
      const std::vector<T> expected = content<T>(count, last);
      // The receive before the message, and behind it.
      std::vector<T> in(room, T(77));
      Work early = comm.irecv_up_to(in, last, {.tag = 3});
      Work sent = comm.isend(out, next, {.tag = 3});
      wait_all(std::array{&early, &sent});
      CHECK(early.received() == Received{last, 3, dtype_of<T>::value, count});
      CHECK(std::equal(expected.begin(), expected.end(), in.begin()));
      CHECK(std::all_of(in.begin() + static_cast<std::ptrdiff_t>(count), in.end(),
                        [](const T& x) { return x == T(77); }));

      std::fill(in.begin(), in.end(), T(77));
      Work again = comm.isend(out, next);
      CHECK(comm.recv_up_to(in, any_source, {.tag = any_tag}) ==
            Received{last, 0, dtype_of<T>::value, count});
      again.wait();
      CHECK(std::equal(expected.begin(), expected.end(), in.begin()));
      CHECK(std::all_of(in.begin() + static_cast<std::ptrdiff_t>(count), in.end(),
                        [](const T& x) { return x == T(77); }));
    }
  }
  comm.barrier();
}

}  // namespace

TEST_CASE("a receive takes what has fewer elements, and leaves the rest of its buffer") {
  for (const int size : {1, 2, 3, 4}) {
    check_all(run_ranks(size, goes_around<std::int32_t>));
  }
  check_all(run_ranks(2, goes_around<std::uint8_t>));
  check_all(run_ranks(2, goes_around<double>));
  check_all(run_ranks(2, goes_around<std::complex<double>>));
}

TEST_CASE("small messages in a row each find a receive that has room for more") {
  constexpr int messages = 500;
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    for (int i = 0; i < messages; ++i) {
      const auto count = static_cast<std::size_t>(i % 9);
      std::vector<int> in(20, -1);
      const auto expected = content<int>(count, i);
      if (comm.rank() == 0) {
        comm.send(expected, 1);
        CHECK(comm.recv_up_to(in, 1).count == count);
      } else {
        CHECK(comm.recv_up_to(in, 0).count == count);
        comm.send(std::span(in).first(count), 0);
      }
      CHECK(std::equal(expected.begin(), expected.end(), in.begin()));
    }
  }));
}

TEST_CASE("a column receives what has fewer elements") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const std::array out{1, 2, 3};
    if (comm.rank() == 1) {
      for (int i = 0; i < 2; ++i) comm.send(out, 0);
      return;
    }
    for (const bool starts : {false, true}) {
      std::array<int, 12> in{};
      const TensorView column(in.data(), 6, DType::i32, {}, 2);
      if (starts) {
        Work work = comm.irecv_up_to(column, 1);
        work.wait();
        CHECK(work.received()->count == 3);
      } else {
        CHECK(comm.recv_up_to(column, 1).count == 3);
      }
      CHECK(in == std::array{1, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0});
    }
  }));
}

TEST_CASE("a message that is too long fails its receive alone, and is there for the next") {
  for (const std::size_t count : {3u, 3000u, 300000u}) {
    check_all(run_ranks(2, [&](const World& world) {
      Communicator comm(world, "pair");
      comm.set_timeout(60s);
      const auto data = content<float>(count, 1);
      if (comm.rank() == 1) {
        comm.send(data, 0, {.tag = 5});
        comm.send(data, 0, {.tag = 5});
        comm.send(data, 0, {.tag = 6});
        return comm.barrier();
      }
      std::vector<float> in(count), little(count - 1);
      // Blocking, and with nothing in between: it does not go.
      for (int i = 0; i < 2; ++i) {
        const auto error = error_of([&] { comm.recv_up_to(little, 1, {.tag = 5}); });
        CHECK(error->errc() == Errc::misuse);
        CHECK(mentions(error, "recv_up_to from rank 1 (tag 5) of 'pair': rank 1 sent " +
                                  std::to_string(count) +
                                  " f32 elements (tag 5), and the buffer "
                                  "has room for " +
                                  std::to_string(count - 1)));
        CHECK(mentions(error, "recv_up_to_test.cpp:"));
      }
      CHECK(comm.recv_up_to(in, 1, {.tag = 5}).count == count);
      CHECK(in == data);
      // Started: the receive behind takes it.
      Work none = comm.irecv_up_to(little, 1, {.tag = 5});
      Work taken = comm.irecv_up_to(in, 1, {.tag = 5});
      taken.wait();
      CHECK(error_of([&] { none.wait(); })->errc() == Errc::misuse);
      CHECK(error_of([&] { none.wait(); })->errc() == Errc::misuse);
      CHECK(none.test());
      CHECK(none.received() == Received{1, 5, DType::f32, count});
      CHECK(taken.received() == Received{1, 5, DType::f32, count});
      // By looks, from anybody.
      Work looked = comm.irecv_up_to(little, any_source, {.tag = any_tag});
      CHECK(looked.wait_for(60s));
      CHECK(looked.received() == Received{1, 6, DType::f32, count});
      CHECK(looked.error() != nullptr);
      comm.recv(in, 1, {.tag = 6});
      comm.barrier();
      CHECK(in == data);
    }));
  }
}

TEST_CASE("an exchange and a batch receive what is shorter than their buffers") {
  for (const std::size_t count : {0u, 1u, 3000u, 300000u}) {
    check_all(run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      const int next = (comm.rank() + 1) % 3, before = (comm.rank() + 2) % 3;
      const auto out = content<int>(count, comm.rank()), expected = content<int>(count, before);
      std::vector<int> in(count + 5, -1), also(count + 7, -1);
      const auto is_right = [&](const std::vector<int>& got) {
        return std::equal(expected.begin(), expected.end(), got.begin()) &&
               std::count(got.begin() + static_cast<std::ptrdiff_t>(count), got.end(), -1) ==
                   static_cast<std::ptrdiff_t>(got.size() - count);
      };
      CHECK(comm.sendrecv_up_to(out, next, in, before, {.tag = 2}) ==
            Received{before, 2, DType::i32, count});
      CHECK(is_right(in));
      std::fill(in.begin(), in.end(), -1);
      comm.batch({Transfer::recv_up_to(in, before), Transfer::send(out, next)});
      CHECK(is_right(in));
      std::fill(in.begin(), in.end(), -1);
      auto works = comm.start_batch(
          {Transfer::send(out, next, 1), Transfer::recv_up_to(in, any_source, 3),
           Transfer::send(out, next, 3), Transfer::recv_up_to(also, before, any_tag)});
      wait_all(works);
      CHECK(works[1].received() == Received{before, 3, DType::i32, count});
      CHECK(works[3].received() == Received{before, 1, DType::i32, count});
      CHECK(is_right(in));
      CHECK(is_right(also));
    }));
  }
}

TEST_CASE("an exchange that has no room for the message has sent its own, and may be made again") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int other = 1 - comm.rank();
    const std::vector<int> out{1, 2, 3};
    std::vector<int> in(3), little(2);
    const auto error = error_of([&] { comm.sendrecv_up_to(out, other, little, other); });
    CHECK(error->errc() == Errc::misuse);
    CHECK(mentions(error, "and the buffer has room for 2"));
    CHECK(comm.recv_up_to(in, other).count == 3);
    CHECK(in == out);
    CHECK(comm.sendrecv_up_to(out, other, in, other).count == 3);
  }));
}

TEST_CASE("another type is a mismatch, however short the message is") {
  const auto outcomes = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<double> in(8);
    const float out = 1;
    if (comm.rank() == 1) return comm.send(out, 0);
    comm.recv_up_to(in, 1);
  });
  CHECK(outcomes[0].code == Errc::mismatch);
  CHECK(outcomes[0].mentions("rank 0 expects 8 f64 elements"));
}

TEST_CASE("what is no receive, and what has not come, has received nothing") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int in = 0, x = 1;
    const int out = comm.rank() + 40;
    const int other = 1 - comm.rank();
    Work waits = comm.irecv(in, other);
    CHECK(waits.received() == std::nullopt);
    Work sum = comm.start_all_reduce(x);
    sum.wait();
    Work sent = comm.isend(out, other);
    waits.wait();
    sent.wait();
    CHECK(in == other + 40);
    CHECK(waits.received() == Received{other, 0, DType::i32, 1});
    CHECK(sum.received() == std::nullopt);
    CHECK(sent.received() == std::nullopt);
    CHECK(Work().received() == std::nullopt);
    Work moved = std::move(waits);
    CHECK(waits.received() == std::nullopt);  // NOLINT: what was moved from is empty.
    CHECK(moved.received()->source == other);
    comm.barrier();
  }));
}

TEST_CASE("a group's receives tell its ranks") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    auto pair = comm.group({2, 1});
    if (!pair) return;
    std::array<int, 4> in{};
    const int out = 7;
    if (pair->rank() == 1) return pair->send(out, 0);
    Work work = pair->irecv_up_to(in, any_source);
    work.wait();
    CHECK(work.received() == Received{1, 0, DType::i32, 1});
  }));
}
