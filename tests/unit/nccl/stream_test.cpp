#include "tests/unit/nccl/double_ranks.hpp"

#include <barrier>
#include <optional>
#include <vector>

#include <doctest/doctest.h>

/// The calls that are put on a stream, and when they are waited for.
namespace dlaunch::testing {
namespace {

using cuda_double::Stream;

/// Streams begin nothing while it lives.
struct Held {
  Held() { cuda_double::hold_streams(true); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { cuda_double::hold_streams(false); }
};

Options on_stream(Stream* stream) {
  Options options;
  options.cuda_stream = stream;
  return options;
}

TEST_CASE("on a stream of the program's a call returns before it is done, and keeps its order") {
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    Stream* const stream = cuda_double::make_stream(me);
    std::vector<int> x{1};
    comm.all_reduce(on_device(x, me), {}, on_stream(stream));
    cuda_double::synchronize(stream);
    CHECK(x[0] == 2);
    together.arrive_and_wait();
    {
      std::optional<Held> held;
      if (me == 0) held.emplace();
      together.arrive_and_wait();
      for (int i = 0; i < 10; ++i) comm.all_reduce(on_device(x, me), {}, on_stream(stream));
      CHECK(x[0] == 2);
      together.arrive_and_wait();
    }
    cuda_double::synchronize(stream);
    CHECK(x[0] == 2048);
  }));
}

TEST_CASE("a started call is waited for, asked for, and ordered before another stream") {
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    std::vector<int> x{1}, copy{0};
    Stream* const stream = cuda_double::make_stream(me);
    Stream* const other = cuda_double::make_stream(me);
    Work first = comm.start_all_reduce(on_device(x, me), {}, on_stream(stream));
    first.wait();
    CHECK(x[0] == 2);
    CHECK(first.done());
    first.wait();
    together.arrive_and_wait();
    std::optional<Held> held;
    if (me == 0) held.emplace();
    together.arrive_and_wait();
    Work second = comm.start_all_reduce(on_device(x, me), {}, on_stream(stream));
    second.order_before(other);
    cuda_double::put(other, [&] { copy[0] = x[0]; });
    CHECK(!second.done());
    CHECK(!second.test());
    together.arrive_and_wait();
    held.reset();
    cuda_double::synchronize(other);
    CHECK(copy[0] == 4);
    second.wait();
    Work none;
    CHECK_THROWS_AS(none.order_before(other), Error);
  }));
}

TEST_CASE("a captured call is put into the graph, and nothing else is done") {
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    std::vector<int> x{1};
    Stream* const stream = cuda_double::make_stream(me);
    comm.all_reduce(on_device(x, me), {}, on_stream(stream));
    cuda_double::synchronize(stream);
    comm.barrier();
    cuda_double::begin_capture(stream);
    comm.all_reduce(on_device(x, me), {}, on_stream(stream));
    Work work = comm.start_all_reduce(on_device(x, me), {}, on_stream(stream));
    work.wait();
    CHECK(work.done());
    comm.barrier();
    CHECK(cuda_double::end_capture(stream));
    comm.barrier();
    CHECK(x[0] == 2);
    cuda_double::replay(stream);
    cuda_double::replay(stream);
    cuda_double::synchronize(stream);
    CHECK(x[0] == 32);
    cuda_double::destroy_graph(stream);
  }));
}

TEST_CASE("what is prepared begins with a message, or in a capture") {
  for (const bool captures : {false, true}) {
    const auto made = nccl_double::counts().made;
    check_all(run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      const int me = comm.rank();
      comm.prepare_device(me);
      comm.prepare_device(me);
      std::vector<int> x{1 + me};
      if (!captures) {
        me == 0 ? comm.send(on_device(x, 0), 1) : (comm.recv(on_device(x, 1), 0), void());
        CHECK(x[0] == 1);
        return;
      }
      Stream* const stream = cuda_double::make_stream(me);
      cuda_double::begin_capture(stream);
      comm.all_reduce(on_device(x, me), {}, on_stream(stream));
      comm.barrier(on_stream(stream));
      CHECK(cuda_double::end_capture(stream));
      cuda_double::replay(stream);
      cuda_double::synchronize(stream);
      CHECK(x[0] == 3);
      cuda_double::destroy_graph(stream);
    }));
    CHECK(nccl_double::counts().made == made + 2);
  }
}

TEST_CASE("a barrier of streams keeps them, and not the ranks, until all have come") {
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    CHECK_THROWS_AS(comm.barrier(on_stream(cuda_double::make_stream(me))), Error);
    comm.prepare_device(me);
    Stream* const stream = cuda_double::make_stream(me);
    comm.barrier(on_stream(stream));  // NCCL waits for all ranks in its first call.
    cuda_double::synchronize(stream);
    together.arrive_and_wait();
    Work work;
    if (me == 0) {
      work = comm.start_barrier(on_stream(stream));
      CHECK(!work.done());
    }
    together.arrive_and_wait();
    if (me == 1) comm.barrier(on_stream(stream));
    if (me == 0) work.wait();
    cuda_double::synchronize(stream);
  }));
}

TEST_CASE("a first call cannot be captured") {
  const auto outcomes = run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    std::vector<int> x{1};
    Stream* const stream = cuda_double::make_stream(comm.rank());
    cuda_double::begin_capture(stream);
    try {
      comm.all_reduce(on_device(x, comm.rank()), {}, on_stream(stream));
    } catch (...) {
      cuda_double::end_capture(stream);
      throw;
    }
  });
  for (const auto& outcome : outcomes) {
    CHECK((outcome.code == Errc::misuse || outcome.code == Errc::mismatch));
    CHECK_MESSAGE(outcome.mentions("cannot be captured"), outcome.text);
  }
}

TEST_CASE(
    "what is under way when the communicator goes ends with an error, what is done does not") {
  std::barrier together(2);
  check_all(run_device_ranks(2, [&](const World& world) {
    std::optional<Communicator> comm(world);
    const int me = comm->rank();
    std::vector<int> x{1}, y{1};
    Work done = comm->start_all_reduce(on_device(x, me));
    done.wait();
    Work under_way;
    if (me == 0) under_way = comm->start_all_reduce(on_device(y, me));
    together.arrive_and_wait();
    comm.reset();
    done.wait();
    if (me == 0) {
      CHECK(under_way.done());
      try {
        under_way.wait();
        FAIL("waited");
      } catch (const Error& error) {
        CHECK(error.errc() == Errc::aborted);
      }
    }
  }));
}

}  // namespace
}  // namespace dlaunch::testing
