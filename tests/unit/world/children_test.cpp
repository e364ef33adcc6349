#include "runtime/world/children.hpp"

#include "runtime/base/deadline.hpp"

#include <cerrno>
#include <stdexcept>

#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

ChildEnd end_of(const std::function<int()>& program) {
  Children children;
  children.start(7, program);
  const auto ended = children.wait(deadline_after(std::chrono::seconds(30)));
  REQUIRE(ended.size() == 1);
  CHECK(children.empty());
  CHECK(ended[0].rank == 7);
  return ended[0];
}

}  // namespace

TEST_CASE("a child's result, exception or signal reaches its parent") {
  CHECK_FALSE(end_of([] { return 0; }).is_failure());
  CHECK(end_of([] { return 3; }).cause() == "exited with 3");
  CHECK(end_of([]() -> int { throw std::runtime_error("no luck"); }).cause() == "failed: no luck");
  const ChildEnd lost = end_of([]() -> int { throw Error(Errc::peer_lost, "rank 1 is gone"); });
  CHECK(lost.errc == Errc::peer_lost);
  CHECK(lost.exit_code == 1);
  const ChildEnd killed = end_of([] { return ::raise(SIGKILL); });
  CHECK(killed.signal == SIGKILL);
  CHECK(killed.cause() == "killed by SIGKILL");
}

TEST_CASE("a long text is cut, not waited for") {
  const ChildEnd end = end_of([]() -> int { throw std::runtime_error(std::string(1 << 20, 'x')); });
  CHECK(end.text.size() == 4000);
}

TEST_CASE("what a child leaves in its group is killed when it ends") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK_FALSE(end_of([&] {
                if (::fork() == 0) {
                  ::close(ends[0]);
                  ::pause();  // Holds the pipe open.
                }
                return 0;
              }).is_failure());
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 0);  // Its end: nobody holds the pipe any more.
  ::close(ends[0]);
}

TEST_CASE("children that still live are killed with the object") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  {
    Children children;
    for (int rank = 0; rank < 3; ++rank) {
      children.start(rank, [&] {
        ::close(ends[0]);
        return ::pause();
      });
    }
    CHECK(children.wait(Clock::now()).empty());
  }
  ::close(ends[1]);
  char byte = 0;
  CHECK(::read(ends[0], &byte, 1) == 0);
  ::close(ends[0]);
}
