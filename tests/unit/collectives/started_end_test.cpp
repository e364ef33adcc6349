// The end of started calls when their communicator ends, or their process forks.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <filesystem>
#include <latch>
#include <optional>
#include <set>
#include <string>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Outcome;
using testing::run_ranks;

namespace {

Outcome outcome_of(Work& work) {
  try {
    work.wait();
    return {};
  } catch (const Error& error) {
    return {error.errc(), error.what()};
  }
}

std::set<std::string> threads_now() {
  std::set<std::string> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    threads.insert(task.path().filename());
  }
  return threads;
}

/// Whether no thread is left that was not there before. One that was joined may still be listed for
/// a moment, also among those before.
bool only_threads_left(const std::set<std::string>& before) {
  const auto deadline = Clock::now() + 30s;
  while (Clock::now() < deadline) {
    const auto now = threads_now();
    if (std::includes(before.begin(), before.end(), now.begin(), now.end())) return true;
    std::this_thread::yield();
  }
  return false;
}

World world_of_one() { return World(WorldInfo{}, std::make_shared<LocalStore>()); }

}  // namespace

TEST_CASE("works outlive their communicator: what is under way is aborted, what was done is done") {
  const auto before = threads_now();
  std::latch over(2);
  for (const auto& outcome : run_ranks(2, [&](const World& world) {
         std::optional<Communicator> comm(world);
         comm->set_timeout(60s);
         std::vector<int> x{1}, y{1}, in{0};
         const std::vector<int> large(4'000'000);
         Work done = comm->start_all_reduce(x);
         done.wait();
         std::vector<Work> works;
         if (comm->rank() == 0) {
           // The other rank comes to none of them: one runs, the others are queued.
           for (int i = 0; i < 5; ++i) works.push_back(comm->start_broadcast(y, 1));
           works.push_back(comm->irecv(in, 1));
           works.push_back(comm->isend(large, 1));
           comm.reset();
         }
         for (Work& work : works) {
           CHECK(work.done());
           const auto outcome = outcome_of(work);
           CHECK(outcome.code == Errc::aborted);
           CHECK_MESSAGE(outcome.mentions("was destroyed before"), outcome.text);
         }
         CHECK(done.done());
         CHECK(outcome_of(done).ok());
         CHECK(x[0] == 2);
         over.arrive_and_wait();
       })) {
    CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
  CHECK(only_threads_left(before));
}

TEST_CASE("works end in any order beside their communicator, moved and assigned") {
  const auto before = threads_now();
  {
    const World world = world_of_one();
    std::vector<int> x{1}, y{2}, z{3}, in{0};
    Work outer;
    {
      Communicator first(world);
      Communicator moved = std::move(first);
      outer = moved.start_all_reduce(x);
      Work message = moved.irecv(in, 0);
      outer = moved.start_all_reduce(y);  // Waits for the one before.
      moved.send(z, 0);
      Communicator replaced(world);
      replaced = std::move(moved);  // Works follow the state, not the face.
      message.wait();
      CHECK(in[0] == 3);
      Work never = replaced.irecv(in, 0);
      std::optional<Communicator> child = replaced.split(0);
      Work of_child = child->start_all_reduce(x);
      child.reset();
      const auto outcome = outcome_of(of_child);
      CHECK((outcome.ok() || outcome.code == Errc::aborted));
      std::optional<Communicator> end(std::move(replaced));
      end.reset();
      CHECK(outcome_of(never).code == Errc::aborted);
    }
    outer.wait();
  }
  CHECK(only_threads_left(before));
}

TEST_CASE("a completion ends its communicator: its call stays complete, those behind it do not") {
  const auto before = threads_now();
  // The completion is called by the thread that waits, or by the communicator's own.
  for (const bool waits : {true, false}) {
    CAPTURE(waits);
    for (const auto& outcome : run_ranks(2, [&](const World& world) {
           std::optional<Communicator> comm(world);
           comm->set_timeout(60s);
           comm->barrier();
           std::vector<int> x{1}, y{1};
           std::latch is_set(1);
           std::optional<Outcome> told;
           Work work = comm->start_all_reduce(
               x, Reduction::custom("late sum", [&](void* a, const void* b, std::size_t, DType) {
                 is_set.wait();
                 *static_cast<int*>(a) += *static_cast<const int*>(b);
               }));
           Work behind = comm->start_broadcast(y, 0);
           work.on_complete([&](const std::exception_ptr& error) {
             comm.reset();
             told = error ? Outcome{Errc::internal, "it failed"} : Outcome{};
           });
           is_set.count_down();
           while (!waits && !work.done()) std::this_thread::yield();
           CHECK(outcome_of(work).ok());
           CHECK((told && told->ok()));
           CHECK(x[0] == 2);
           CHECK(outcome_of(behind).code == Errc::aborted);
         })) {
      CHECK_MESSAGE(outcome.ok(), outcome.text);
    }
  }
  CHECK(only_threads_left(before));
}

TEST_CASE("a forked child neither waits for its parent's threads nor uses them") {
  const World world = world_of_one();
  std::optional<Communicator> comm(world);
  std::vector<int> x{1}, y{2}, in{0};
  std::optional<Work> collective(comm->start_all_reduce(x));
  std::optional<Work> message(comm->irecv(in, 0));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    const auto is_misuse = [](const auto& call) {
      try {
        call();
        return false;
      } catch (const Error& error) {
        return error.errc() == Errc::misuse;
      }
    };
    bool right = is_misuse([&] { message->wait(); });
    right = is_misuse([&] { message->test(); }) && right;
    right = is_misuse([&] { comm->barrier(); }) && right;
    right = is_misuse([&] { comm->send(y, 0); }) && right;
    right = is_misuse([&] { static_cast<void>(comm->start_barrier()); }) && right;
    message.reset();
    collective.reset();
    comm.reset();
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  comm->send(y, 0);
  message->wait();
  collective->wait();
  CHECK(in[0] == 2);
}
