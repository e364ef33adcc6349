#include "tests/unit/nccl/double_ranks.hpp"

#include <array>
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

/// Calls on devices that cannot end: ranks that disagree, are lost, or are told so, and a library
/// that fails.
namespace dlaunch::testing {
namespace {

using namespace std::chrono_literals;
using cuda_double::Stream;

std::vector<std::shared_ptr<FakeMembership>> memberships(int size) {
  std::vector<std::shared_ptr<FakeMembership>> made;
  while (static_cast<int>(made.size()) < size) made.push_back(std::make_shared<FakeMembership>());
  return made;
}

void bring_up(Communicator& comm) {
  std::vector<int> x{1};
  comm.all_reduce(on_device(x, comm.rank()));
  CHECK(x[0] == comm.size());
}

void check_all(const std::vector<Outcome>& outcomes, Errc code,
               const std::vector<std::string>& parts) {
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == code, outcome.text);
    for (const auto& part : parts) CHECK_MESSAGE(outcome.mentions(part), outcome.text);
  }
}

using Two = std::array<std::function<void(Communicator&)>, 2>;

/// Two ranks disagree, at the first call or later; who fails first is not known.
void check_mismatch(const Two& calls, const std::vector<std::string>& parts) {
  for (const bool later : {false, true}) {
    CAPTURE(later);
    const auto begin = Clock::now();
    const auto outcomes = run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      if (later) bring_up(comm);
      calls[static_cast<std::size_t>(comm.rank())](comm);
    });
    check_all(outcomes, Errc::mismatch, parts);
    CHECK(Clock::now() - begin < 60s);  // Not the five minutes of a timeout.
  }
}

template <class T>
void all_reduce(Communicator& comm, const Reduction& reduction = {}) {
  std::vector<T> x(8);
  comm.all_reduce(on_device(x, comm.rank()), reduction);
}

TEST_CASE("ranks in different calls all say so") {
  const auto sum = [](Communicator& comm) { all_reduce<float>(comm); };
  check_mismatch({sum, [](Communicator& comm) { comm.barrier(); }},
                 {"barrier #", "all_reduce #", "CUDA"});
  check_mismatch({[](Communicator& comm) { comm.barrier(); }, sum},
                 {"barrier #", "all_reduce #", "CUDA"});
  check_mismatch({sum, [](Communicator& comm) { all_reduce<float>(comm, ReduceOp::max); }},
                 {"sum", "max"});
  check_mismatch({sum, [](Communicator& comm) { all_reduce<double>(comm); }}, {"f32", "f64"});
  check_mismatch({sum,
                  [](Communicator& comm) {
                    std::vector<float> x(8);
                    comm.all_reduce(x);
                  }},
                 {"8 elements", "CUDA"});
}

TEST_CASE("ranks that disagree are found while nobody waits in a call") {
  std::atomic<int> seen{0};
  const auto outcomes = run_device_ranks(3, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm);
    Stream* const stream = cuda_double::make_stream(comm.rank());
    Options options;
    options.cuda_stream = stream;
    std::vector<float> x(4);
    comm.all_reduce(on_device(x, comm.rank()), comm.rank() == 2 ? ReduceOp::max : ReduceOp::sum,
                    options);
    // As a program that waits for its stream: it goes on when NCCL was aborted.
    cuda_double::synchronize(stream);
    ++seen;
    comm.barrier();
  });
  CHECK(seen >= 1);  // A late caller may be told in the call.
  check_all(outcomes, Errc::mismatch, {"sum", "max"});
}

TEST_CASE("wrong arguments on one rank end the call on all") {
  for (const bool later : {false, true}) {
    CAPTURE(later);
    const auto outcomes = run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      if (later) bring_up(comm);
      std::vector<float> in(4), out(comm.rank() == 0 ? 8U : 7U);
      comm.all_gather(on_device(in, comm.rank()), on_device(out, comm.rank()));
    });
    CHECK_MESSAGE(outcomes[0].code == Errc::mismatch, outcomes[0].text);
    CHECK_MESSAGE(outcomes[1].code == Errc::misuse, outcomes[1].text);
    CHECK_MESSAGE(outcomes[0].mentions("a buffer of 8 elements is needed"), outcomes[0].text);
  }
}

void check_refused(Errc code, const std::string& part,
                   const std::function<void(Communicator&)>& body) {
  CAPTURE(part);
  const auto outcomes = run_device_ranks(1, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm);
    try {
      body(comm);
    } catch (const Error&) {
      bring_up(comm);  // Nothing is broken.
      throw;
    }
  });
  check_all(outcomes, code, {part});
}

TEST_CASE("what cannot be is refused with its reason") {
  std::vector<float> x(4), y(4);
  std::vector<std::int16_t> shorts(4);
  std::vector<std::int32_t> ints(4);
  const auto here = [](auto& elements) { return on_device(elements, 0); };
  check_refused(Errc::misuse, "one buffer lies in CUDA device 0, the other in host memory",
                [&](Communicator& comm) { comm.all_gather(here(x), y); });
  check_refused(Errc::misuse, "one buffer lies in CUDA device 0, the other in CUDA device 1",
                [&](Communicator& comm) { comm.all_gather(here(x), on_device(y, 1)); });
  check_refused(Errc::misuse, "a communicator keeps to one device",
                [&](Communicator& comm) { comm.all_reduce(on_device(x, 1)); });
  check_refused(Errc::unsupported, "no arithmetic for i16",
                [&](Communicator& comm) { comm.all_reduce(here(shorts)); });
  check_refused(Errc::unsupported, "no reduction by bor",
                [&](Communicator& comm) { comm.all_reduce(here(ints), ReduceOp::bor); });
  check_refused(Errc::unsupported, "NCCL adds elements of u8 in their own type",
                [&](Communicator& comm) {
                  // 200 and 200 would be 72, and not 200.
                  std::vector<std::uint8_t> large(4, 200);
                  comm.all_reduce(here(large), ReduceOp::mean, {.truncate_mean = true});
                });
  check_refused(Errc::unsupported, "canonical", [&](Communicator& comm) {
    comm.all_reduce(here(x), Reduction(ReduceOp::sum).canonical());
  });
  check_refused(Errc::unsupported, "a stride of 2", [&](Communicator& comm) {
    comm.all_reduce({x.data(), 2, DType::f32, Place{0}, 2});
  });
  check_refused(Errc::unsupported, "no tags", [&](Communicator& comm) {
    MessageOptions options;
    options.tag = 3;
    comm.send(here(x), 0, options);
  });
  check_refused(Errc::unsupported, "a buffer whole",
                [&](Communicator& comm) { comm.batch({Transfer::recv_up_to(here(x), 0)}); });
  check_refused(Errc::unsupported, "not from any",
                [&](Communicator& comm) { comm.recv(here(x), any_source); });
  check_refused(Errc::misuse, "would drop the fraction",
                [&](Communicator& comm) { comm.all_reduce(here(ints), ReduceOp::mean); });
}

TEST_CASE("a device that is not there, and a message as the first call") {
  const auto outcomes = run_device_ranks(1, [](const World& world) {
    Communicator comm(world);
    std::vector<float> x(4);
    CHECK_THROWS_AS(comm.send(on_device(x, 0), 0), Error);
    comm.all_reduce(on_device(x, 77));
  });
  check_all(outcomes, Errc::misuse, {"no CUDA device 77, this process has 9"});
}

TEST_CASE("a message that is not what its receiver expects is told of by both") {
  for (const bool by_type : {false, true}) {
    CAPTURE(by_type);
    const auto outcomes = run_device_ranks(3, [&](const World& world) {
      // They last longer than what may still be under way on a stream.
      std::vector<float> x(4);
      std::vector<double> y(2);
      std::vector<std::int32_t> z(4);
      Communicator comm(world);
      bring_up(comm);
      const int me = comm.rank();
      if (me == 0) comm.send(on_device(x, 0), 1);
      if (me == 1) by_type ? comm.recv(on_device(z, 1), 0) : comm.recv(on_device(y, 1), 0);
      // Messages that are moved as meant are compared later.
      for (const auto until = Clock::now() + 60s; Clock::now() < until;) comm.barrier();
    });
    if (by_type) {
      check_all(outcomes, Errc::mismatch,
                {"rank 0 sends 4 elements of f32 to rank 1, which receives 4 elements of i32"});
    } else {
      check_all(outcomes, Errc::mismatch, {"which receives 2 elements of f64"});
    }
  }
}

TEST_CASE("messages that agree are compared one by one") {
  check_all(run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm);
    const int me = comm.rank();
    for (std::size_t count = 1; count < 300; ++count) {
      std::vector<float> x(count);
      Options options;
      options.cuda_stream = nullptr;
      if (me == 0) comm.send(on_device(x, 0), 1, options);
      if (me == 1) comm.recv(on_device(x, 1), 0, options);
    }
    comm.barrier();
  }));
}

TEST_CASE("a rank that dies ends the others' calls, whether they wait or not") {
  const auto members = memberships(3);
  const auto aborted = nccl_double::counts().aborted;
  auto outcomes = run_device_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        bring_up(comm);
        if (comm.rank() == 2) {
          for (int rank : {0, 1}) {
            members[static_cast<std::size_t>(rank)]->lose({2, "host-c", "killed by SIGKILL"});
          }
          leave_behind(std::move(comm));
          return;
        }
        std::vector<float> x(4);
        if (comm.rank() == 0) return comm.all_reduce(on_device(x, 0));
        Stream* const stream = cuda_double::make_stream(1);
        Options options;
        options.cuda_stream = stream;
        comm.all_reduce(on_device(x, 1), {}, options);
        cuda_double::synchronize(stream);
        comm.all_reduce(on_device(x, 1), {}, options);
      },
      members);
  outcomes.pop_back();
  check_all(outcomes, Errc::peer_lost, {"lost rank 2", "killed by SIGKILL"});
  CHECK(nccl_double::counts().aborted >= aborted + 2);
}

TEST_CASE("a call that not all come to names who is absent") {
  Event over;
  auto outcomes = run_device_ranks(3, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm);
    if (comm.rank() == 1) {
      CHECK(over.wait());
      return;
    }
    Options options;
    options.timeout = 200ms;
    std::vector<float> x(4);
    try {
      comm.all_reduce(on_device(x, comm.rank()), {}, options);
    } catch (const Error&) {
      over.set();
      throw;
    }
  });
  outcomes.erase(outcomes.begin() + 1);
  check_all(outcomes, Errc::timeout, {"all_reduce #2", "absent: rank 1"});
}

TEST_CASE("a call in which NCCL waits for a rank that does not come ends at its timeout") {
  for (const bool later : {false, true}) {
    CAPTURE(later);
    Event ended;
    const auto begin = Clock::now();
    const auto outcomes = run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.prepare_device(comm.rank());
      if (later) bring_up(comm);
      if (comm.rank() == 1) {
        CHECK(ended.wait());
        return;
      }
      std::vector<int> x{1};
      ReduceOptions options;
      options.timeout = 300ms;
      try {
        comm.all_reduce(on_device(x, 0), {}, options);
      } catch (...) {
        ended.set();
        throw;
      }
    });
    CHECK_MESSAGE(outcomes[0].code == Errc::timeout, outcomes[0].text);
    CHECK_MESSAGE(outcomes[0].mentions("all_reduce #"), outcomes[0].text);
    CHECK_MESSAGE(outcomes[0].mentions("rank 1"), outcomes[0].text);
    CHECK(Clock::now() - begin < 30s);
  }
}

TEST_CASE("abort ends a call in which NCCL waits, from another thread") {
  std::atomic<bool> entering{false};
  Event ended;
  const auto outcomes = run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.prepare_device(comm.rank());
    if (comm.rank() == 1) {
      CHECK(ended.wait());
      return;
    }
    std::vector<int> x{1};
    std::jthread other([&] {
      while (!entering) std::this_thread::yield();
      comm.abort();
    });
    entering = true;
    try {
      comm.all_reduce(on_device(x, 0));
    } catch (...) {
      ended.set();
      throw;
    }
  });
  CHECK_MESSAGE(outcomes[0].code == Errc::aborted, outcomes[0].text);
}

TEST_CASE("abort and revoke end what is on the device") {
  for (const bool revokes : {false, true}) {
    CAPTURE(revokes);
    Event begun;
    const auto outcomes = run_device_ranks(2, [&](const World& world) {
      Communicator comm(world);
      bring_up(comm);
      std::vector<float> x(4);
      if (comm.rank() == 1) {
        CHECK(begun.wait());
        revokes ? comm.revoke() : comm.abort();
        return comm.barrier();
      }
      Work work = comm.start_all_reduce(on_device(x, 0));
      begun.set();
      work.wait();
    });
    CHECK_MESSAGE(outcomes[1].code == (revokes ? Errc::revoked : Errc::aborted), outcomes[1].text);
    CHECK_MESSAGE((outcomes[0].code == outcomes[1].code || outcomes[0].code == Errc::peer_lost),
                  outcomes[0].text);
  }
}

TEST_CASE("a library that fails in the background") {
  const auto outcomes = run_device_ranks(1, [&](const World& world) {
    Communicator comm(world);
    bring_up(comm);
    nccl_double::fail_with(2);
    std::vector<float> x(4);
    try {
      comm.all_reduce(on_device(x, 0));
    } catch (...) {
      nccl_double::fail_with(0);
      throw;
    }
  });
  check_all(outcomes, Errc::internal, {"all_reduce #2 on rank 0: NCCL failed"});
}

TEST_CASE("a library that does not come up in time") {
  nccl_double::never_join(true);
  const auto outcomes = run_device_ranks(2, [&](const World& world) {
    Communicator comm(world);
    Options options;
    options.timeout = 200ms;
    std::vector<float> x(4);
    comm.all_reduce(on_device(x, comm.rank()), {}, options);
  });
  nccl_double::never_join(false);
  check_all(outcomes, Errc::timeout, {"all_reduce #1", "0.2 s"});
}

TEST_CASE("going on with the survivors") {
  const auto members = memberships(3);
  check_all(run_device_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        bring_up(comm);
        if (comm.rank() == 2) {
          for (int rank : {0, 1}) {
            members[static_cast<std::size_t>(rank)]->lose({2, "host-c", "killed by SIGKILL"});
          }
          leave_behind(std::move(comm));
          return;
        }
        std::vector<float> x(4);
        CHECK_THROWS_AS(comm.all_reduce(on_device(x, comm.rank())), Error);
        comm.revoke();
        Communicator rest = comm.shrink();
        bring_up(rest);
      },
      members));
}

}  // namespace
}  // namespace dlaunch::testing
