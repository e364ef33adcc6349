// What a program may do with what it has started: wait for a while, for one of several or for all,
// ask how it ended, and be told.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <array>
#include <exception>
#include <latch>
#include <mutex>
#include <optional>
#include <thread>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Event;
using testing::run_ranks;

namespace {

Errc code_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.errc();
  }
}

template <class Call>
std::optional<Errc> error_of(const Call& call) {
  try {
    call();
    return std::nullopt;
  } catch (const Error& error) {
    return error.errc();
  }
}

/// What completions were told, by whichever thread.
class Told {
 public:
  Work::Completion note(int which) {
    return [this, which](const std::exception_ptr& error) {
      const std::lock_guard lock(mutex_);
      all_.emplace_back(which, error ? std::optional(code_of(error)) : std::nullopt);
    };
  }
  std::vector<std::pair<int, std::optional<Errc>>> all() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::pair<int, std::optional<Errc>>> all_;
};

World world_of_one() { return World(WorldInfo{}, std::make_shared<LocalStore>()); }

}  // namespace

TEST_CASE("a wait for a while ends by then, and fails nothing") {
  Event looked;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    int sum = 1, in = 0;
    const int out = 7;
    if (comm.rank() == 1) {
      CHECK(looked.wait());
      comm.send(out, 0);
      comm.all_reduce(sum);
    } else {
      Work message = comm.irecv(in, 1, {.timeout = 1ms});  // From wait() on; here nobody waits.
      Work collective = comm.start_all_reduce(sum);
      CHECK(!message.wait_for(5ms));
      CHECK(!collective.wait_for(5ms));
      CHECK(!message.wait_for(0ms));
      CHECK(!collective.wait_for(-1s));
      CHECK(message.error() == nullptr);
      CHECK(collective.error() == nullptr);
      looked.set();
      CHECK(message.wait_for(60s));
      CHECK(collective.wait_for(Clock::duration::max()));
      CHECK(message.done());
      CHECK(collective.done());
      CHECK(collective.error() == nullptr);
      CHECK(in == 7);
      CHECK(Work().wait_for(0s));
    }
    CHECK(sum == 2);
    comm.barrier();
  }));
}

TEST_CASE("a failed call is complete for those who wait for a while, and tells its error") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<int> x{1}, in(comm.rank() == 0 ? 3 : 2), out(2);
    Work wrong = comm.start_broadcast(x, 7);
    CHECK(wrong.wait_for(60s));
    CHECK(code_of(wrong.error()) == Errc::misuse);
    CHECK(code_of(wrong.error()) == Errc::misuse);
    if (comm.rank() == 0) {
      Work message = comm.irecv(in, 1);
      CHECK(message.wait_for(60s));
      CHECK(code_of(message.error()) == Errc::mismatch);
    } else {
      comm.send(out, 0);
    }
  }));
}

TEST_CASE("of several works the one that is complete is found, whatever it is") {
  constexpr int turns = 6;
  std::array<Event, turns> found;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator a(world);
    a.set_timeout(60s);
    Communicator b = a.duplicate();
    int x = 1, y = 1, in = 0, other_in = 0, sum = 1, late = 1;
    const int out = 5;
    if (a.rank() == 1) {
      b.send(out, 0);
      CHECK(found[0].wait());
      a.all_reduce(x);
      CHECK(found[1].wait());
      b.all_reduce(y);
      CHECK(found[2].wait());
      a.send(out, 0);
    } else {
      std::vector<Work> works(6);  // The first and the last are none.
      works[1] = a.start_all_reduce(x);
      works[2] = b.start_all_reduce(y);
      works[3] = a.irecv(in, 1);
      works[4] = b.irecv(other_in, 1);
      constexpr std::array<std::size_t, 4> order{4, 1, 2, 3};
      for (std::size_t turn = 0; turn < order.size(); ++turn) {
        CHECK(wait_any(works, 60s) == order[turn]);
        CHECK(wait_any(works, 0s) == order[turn]);
        works[order[turn]] = {};
        if (turn < 3) CHECK(wait_any(works, 1ms) == std::nullopt);
        found[turn].set();
      }
      CHECK(wait_any(works, 60s) == std::nullopt);  // None is left.
      CHECK(wait_any(std::span<Work>(), 60s) == std::nullopt);
      const std::array<Work*, 2> null{};
      CHECK(wait_any(null, 60s) == std::nullopt);
      wait_all(null);
    }
    CHECK(x == 2);
    CHECK(y == 2);
    std::vector<Work> works;
    works.push_back(a.start_all_reduce(sum));
    works.push_back(b.start_broadcast(sum, 9));
    works.push_back(a.start_broadcast(sum, 8));
    works.push_back(b.start_all_reduce(late));
    CHECK(error_of([&] { wait_all(works); }) == Errc::misuse);
    for (const Work& work : works) CHECK(work.done());
    CHECK(sum == 2);
    CHECK(late == 2);
    works.clear();
    works.emplace_back();
    wait_all(works);
  }));
}

TEST_CASE("of several works those are found that are complete, and whether all are") {
  std::array<Event, 3> found;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    const int out = 5;
    if (comm.rank() == 1) {
      comm.send(out, 0, {.tag = 3});
      comm.send(out, 0, {.tag = 1});
      CHECK(found[0].wait());
      comm.send(out, 0, {.tag = 2});
      return comm.barrier();
    }
    std::array<int, 3> in{};
    std::vector<Work> works(5);  // The first and the last are none.
    for (std::size_t i = 0; i < in.size(); ++i) {
      works[i + 1] = comm.irecv(in[i], 1, {.tag = static_cast<int>(i) + 1});
    }
    std::vector<std::size_t> complete;
    while (complete.size() < 2) complete = wait_some(works, 60s);
    CHECK(complete == std::vector<std::size_t>{1, 3});
    CHECK(wait_some(works, 0s) == complete);
    CHECK(test_any(works) == 1);
    CHECK(!test_all(works));
    for (const std::size_t i : complete) works[i] = {};
    CHECK(wait_some(works, 1ms).empty());
    CHECK(test_any(works) == std::nullopt);
    CHECK(!test_all(works));
    found[0].set();
    const std::array<Work*, 3> pointers{nullptr, &works[0], &works[2]};
    while (!test_all(pointers)) {
    }
    CHECK(test_any(pointers) == 2);
    CHECK(wait_some(pointers, 60s) == std::vector<std::size_t>{2});
    works[2] = {};
    CHECK(wait_some(works, 60s).empty());
    CHECK(test_any(works) == std::nullopt);
    CHECK(test_all(works));
    CHECK(test_all(std::span<Work>()));
    comm.barrier();
    CHECK(in == std::array{5, 5, 5});
    // One that failed is complete.
    works[1] = comm.irecv(in[0], 1, {.timeout = 1ms, .tag = 9});
    CHECK(works[1].cancel());
    CHECK(wait_some(works, 60s) == std::vector<std::size_t>{1});
    CHECK(test_all(works));
  }));
}

TEST_CASE("an abort ends the waits for a while, and for one of several") {
  Event over;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    comm.barrier();
    if (comm.rank() == 1) {
      CHECK(over.wait());
      return;
    }
    int in = 0, x = 0;
    std::vector<Work> works;
    works.push_back(comm.irecv(in, 1));
    works.push_back(comm.start_all_reduce(x));
    const std::jthread aborts([&] { comm.abort(); });
    CHECK(works[0].wait_for(60s));
    CHECK(works[1].wait_for(60s));
    CHECK(wait_any(works, 60s) == 0);
    CHECK(code_of(works[0].error()) == Errc::aborted);
    CHECK(code_of(works[1].error()) == Errc::aborted);
    over.set();
  }));
}

TEST_CASE("completions are told once, before anybody who waits hears of the end") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Told told;
    for (int i = 0; i < 200; ++i) {
      int x = 1, y = 1;
      bool first = false, second = false;
      Work one = comm.start_all_reduce(x);
      Work two = comm.start_all_reduce(y);
      one.on_complete([&](const std::exception_ptr& error) { first = error == nullptr && x == 3; });
      two.on_complete(
          [&](const std::exception_ptr& error) { second = first && error == nullptr && y == 3; });
      if (i % 3 == 0) two.wait();
      if (i % 3 == 1) comm.barrier();  // Behind both.
      if (i % 3 == 2) two = {};        // Ends as the destructor does.
      CHECK(second);
    }
    int x = 1;
    Work work = comm.start_all_reduce(x);
    work.on_complete(told.note(1));
    work.on_complete(told.note(2));
    work.wait();
    bool here = false;
    work.on_complete([&, me = std::this_thread::get_id()](const std::exception_ptr& error) {
      here = error == nullptr && me == std::this_thread::get_id();
    });
    CHECK(here);
    Work().on_complete(told.note(3));
    const auto all = told.all();
    REQUIRE(all.size() == 3);
    for (int i = 0; i < 3; ++i)
      CHECK(all[static_cast<std::size_t>(i)] == std::pair(i + 1, std::optional<Errc>()));
    comm.barrier();
  }));
}

TEST_CASE("completions hear of failures, of an abort, and of the end of the communicator") {
  std::latch over(2);
  check_all(run_ranks(2, [&](const World& world) {
    std::optional<Communicator> comm(world);
    comm->set_timeout(60s);
    Told told;
    int x = 1;
    Work wrong = comm->start_broadcast(x, 7);
    wrong.on_complete(told.note(0));
    CHECK(error_of([&] { wrong.wait(); }) == Errc::misuse);
    comm->barrier();
    Communicator aborted = comm->duplicate();
    std::vector<Work> works;
    if (comm->rank() == 0) {
      // The other rank comes to none of them: one runs, the others are queued.
      for (int i = 1; i <= 3; ++i) {
        works.push_back(aborted.start_broadcast(x, 1));
        works.back().on_complete(told.note(i));
      }
      aborted.abort();
      for (Work& work : works) CHECK(error_of([&] { work.wait(); }) == Errc::aborted);
      for (int i = 4; i <= 6; ++i) {
        works.push_back(comm->start_broadcast(x, 1));
        works.back().on_complete(told.note(i));
      }
      comm.reset();
      // In whichever order: the one that runs is told by another thread than the queued ones.
      const auto all = told.all();
      REQUIRE(all.size() == 7);
      for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(all[i].second == (i == 0 ? Errc::misuse : Errc::aborted));
      }
    }
    over.arrive_and_wait();
  }));
}

TEST_CASE("a completion starts calls, and what would wait for its own end is refused") {
  check_all(run_ranks(2, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Communicator other = comm.duplicate();
    int x = 1, y = 1, z = 1;
    Event started;
    Work first = comm.start_all_reduce(x), second, third;
    std::vector<std::optional<Errc>> refused;
    first.on_complete([&](const std::exception_ptr&) {
      second = comm.start_all_reduce(y);
      refused.push_back(error_of([&] { comm.barrier(); }));
      // A call that is complete already waits for nothing.
      const auto refused_unless_done = [&](auto wait) {
        const std::optional<Errc> refusal = error_of(wait);
        refused.push_back(!refusal && second.done() ? Errc::misuse : refusal);
      };
      refused_unless_done([&] { second.wait(); });
      refused_unless_done([&] { static_cast<void>(second.wait_for(60s)); });
      other.all_reduce(z);  // Another one's calls are nobody's but its own.
      second.on_complete([&](const std::exception_ptr&) {
        third = comm.start_barrier();
        started.set();
      });
    });
    CHECK(started.wait());
    third.wait();
    CHECK(refused == std::vector<std::optional<Errc>>(3, Errc::misuse));
    CHECK(second.done());
    CHECK(y == 2);
    CHECK(z == 2);
    comm.barrier();
  }));
}

TEST_CASE("messages have no completions") {
  const World world = world_of_one();
  Communicator comm(world);
  int in = 0;
  const int out = 1;
  Work work = comm.irecv(in, 0);
  CHECK(error_of([&] { work.on_complete([](const std::exception_ptr&) {}); }) == Errc::unsupported);
  CHECK(error_of([&] { work.on_complete(nullptr); }) == Errc::misuse);
  comm.send(out, 0);
}

TEST_CASE("a completion that throws ends the program") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    std::set_terminate([] { ::_exit(42); });
    const World world = world_of_one();
    Communicator comm(world);
    int x = 1;
    Work work = comm.start_all_reduce(x);
    work.on_complete([](const std::exception_ptr&) { throw std::runtime_error("too late"); });
    work.wait();
    ::_exit(1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 42);
}

TEST_CASE("a forked child waits for nothing of its parent's, and is told of nothing") {
  const World world = world_of_one();
  Communicator comm(world);
  int x = 1, in = 0;
  const int out = 2;
  Work message = comm.irecv(in, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const auto nothing = [](const std::exception_ptr&) {};
    const bool right =
        error_of([&] { static_cast<void>(message.wait_for(1s)); }) == Errc::misuse &&
        error_of([&] { message.on_complete(nothing); }) == Errc::misuse &&
        error_of([&] { static_cast<void>(wait_any(std::span(&message, 1), 1s)); }) == Errc::misuse;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  comm.send(out, 0);
  comm.all_reduce(x);
}
