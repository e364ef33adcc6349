#include "tests/unit/nccl/double_ranks.hpp"

#include <barrier>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

/// How NCCL's communicators end: in order, not before their graphs, while others of them are made,
/// and when something goes wrong while nobody is in a call.
namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using cuda_double::CaptureMode;
using cuda_double::Stream;

Options on_stream(Stream* stream) {
  Options options;
  options.cuda_stream = stream;
  return options;
}

void bring_up(Communicator& comm, int device) {
  std::vector<int> x{1};
  comm.all_reduce(on_device(x, device));
  CHECK(x[0] == comm.size());
}

/// Communicators ended in the background are gone soon, but for those that a graph has.
bool become(std::int64_t living) {
  for (const auto until = Clock::now() + 60s; Clock::now() < until; std::this_thread::yield()) {
    if (nccl_double::counts().living == living) return true;
  }
  return false;
}

/// A graph with one call of each rank.
void capture(Communicator& comm, int device, Stream* stream, std::vector<int>& x) {
  cuda_double::begin_capture(stream);
  comm.all_reduce(on_device(x, device), {}, on_stream(stream));
  CHECK(cuda_double::end_capture(stream));
}

TEST_CASE("a communicator that was captured can be destroyed before its graph") {
  const auto before = nccl_double::counts().living;
  std::vector<Stream*> streams{cuda_double::make_stream(0), cuda_double::make_stream(1)};
  check_all(run_device_ranks(2, [&](const World& world) {
    std::optional<Communicator> comm(world);
    const int me = comm->rank();
    bring_up(*comm, me);
    std::vector<int> x{1};
    capture(*comm, me, streams[static_cast<std::size_t>(me)], x);
    comm.reset();
    Communicator another(world);
    bring_up(another, me);
  }));
  CHECK(nccl_double::counts().living >= before + 2);
  for (Stream* const stream : streams) cuda_double::destroy_graph(stream);
  CHECK(become(before));
}

TEST_CASE("the survivors go on while graphs still have calls of what they had") {
  const auto before = nccl_double::counts().living;
  std::vector<std::shared_ptr<FakeMembership>> members;
  while (members.size() < 3) members.push_back(std::make_shared<FakeMembership>());
  std::vector<Stream*> streams;
  for (int rank = 0; rank < 3; ++rank) streams.push_back(cuda_double::make_stream(rank));
  Communicator* dead = nullptr;
  check_all(run_device_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        const int me = comm.rank();
        bring_up(comm, me);
        std::vector<int> x{1};
        capture(comm, me, streams[static_cast<std::size_t>(me)], x);
        comm.barrier();
        if (me == 2) {
          for (const std::size_t rank : {0U, 1U}) {
            members[rank]->lose({2, "host-c", "killed by SIGKILL"});
          }
          dead = new Communicator(std::move(comm));  // It does not say that it ends.
          return;
        }
        CHECK_THROWS_AS(bring_up(comm, me), Error);
        Communicator rest = comm.shrink();
        bring_up(rest, me);
      },
      members));
  for (Stream* const stream : streams) cuda_double::destroy_graph(stream);
  delete dead;
  CHECK(become(before));
}

/// NCCL writes what it makes when it gives up, which is after its caller has.
void give_up_making(const std::function<void(Communicator&, const Options&)>& make) {
  const auto before = nccl_double::counts().living;
  const auto outcomes = run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm, comm.rank());
    Options options;
    options.timeout = 100ms;
    nccl_double::hold_making(true);
    make(comm, options);
  });
  nccl_double::hold_making(false);
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE((outcome.code == Errc::timeout || outcome.code == Errc::peer_lost), outcome.text);
  }
  CHECK(become(before));
}

TEST_CASE("what is being made of a communicator ends with it") {
  give_up_making([](Communicator& comm, const Options& options) {
    static_cast<void>(comm.split(0, 0, options));
  });
  give_up_making([](Communicator& comm, const Options& options) {
    static_cast<void>(comm.split(comm.rank() == 0 ? std::nullopt : std::optional(0), 0, options));
  });
  give_up_making([](Communicator& comm, const Options& options) {
    static_cast<void>(comm.duplicate(options));
  });
}

TEST_CASE("who has no colour is not written to later") {
  const auto before = nccl_double::counts().living;
  check_all(run_device_ranks(3, [](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    bring_up(comm, me);
    for (int i = 0; i < 5; ++i) {
      auto child = comm.split(me == 1 ? std::nullopt : std::optional(0));
      CHECK(child.has_value() == (me != 1));
      if (child) bring_up(*child, me);
    }
  }));
  CHECK(become(before));
}

TEST_CASE("what was sent last arrives although its sender ends") {
  const auto before = nccl_double::counts();
  Event ending;
  check_all(run_device_ranks(2, [&](const World& world) {
    std::optional<Communicator> comm(world);
    const int me = comm->rank();
    bring_up(*comm, me);
    std::vector<int> x{me};
    if (me == 0) {
      x = {7};
      comm->send(on_device(x, 0), 1);
      ending.set();
      comm.reset();
    } else {
      CHECK(ending.wait());
      comm->recv(on_device(x, 1), 0);
      CHECK(x[0] == 7);
    }
  }));
  CHECK(nccl_double::counts().aborted == before.aborted);
  CHECK(nccl_double::counts().destroyed == before.destroyed + (nccl_revokes() ? 4 : 2));
}

TEST_CASE("what goes wrong in the background ends the streams that a program waits for") {
  Event waiting, told;
  const auto outcomes = run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    const int me = comm.rank();
    bring_up(comm, me);
    std::vector<int> x{1};
    if (me == 1) {
      CHECK(waiting.wait());
      nccl_double::fail_with(6);
      CHECK(told.wait());
      return comm.all_reduce(on_device(x, 1));
    }
    Stream* const stream = cuda_double::make_stream(0);
    comm.all_reduce(on_device(x, 0), {}, on_stream(stream));
    waiting.set();
    cuda_double::synchronize(stream);
    told.set();
    comm.barrier();
  });
  nccl_double::fail_with(0);
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code.has_value(), outcome.text);
    CHECK_MESSAGE(outcome.mentions("NCCL failed: remote process exited"), outcome.text);
    CHECK_MESSAGE(outcome.mentions("rank "), outcome.text);
  }
}

TEST_CASE("to look after calls does not spoil a capture, of whatever kind") {
  for (const auto mode : {CaptureMode::global, CaptureMode::thread_local_, CaptureMode::relaxed}) {
    std::barrier together(2);
    check_all(run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      const int me = comm.rank();
      Stream* const stream = cuda_double::make_stream(me);
      std::vector<int> x{1}, y{1};
      bring_up(comm, me);
      Work before = comm.start_all_reduce(on_device(y, me));
      together.arrive_and_wait();
      if (me == 0) cuda_double::begin_capture(stream, mode);
      together.arrive_and_wait();
      before.wait();  // Also by the thread that captures.
      const DeviceBuffer buffer = comm.allocate_device(64, me);
      together.arrive_and_wait();
      if (me == 0) CHECK(cuda_double::end_capture(stream));
      CHECK(y[0] == 2);
    }));
  }
}

}  // namespace
}  // namespace dlaunch::testing
