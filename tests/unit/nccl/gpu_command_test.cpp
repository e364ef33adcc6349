#include "tests/gpu/command.hpp"

#include <dlaunch/error.hpp>

#include <doctest/doctest.h>

/// Commands of gpu_test: their output is kept, and those that hang are ended.
namespace dlaunch::gpu_test {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a command's code and what it wrote to both streams") {
  const auto fine = run_command("echo one; echo one more >&2", 60s, false);
  CHECK(fine.ok());
  CHECK(fine.output == "one\none more\n");
  CHECK(fine.lines_with("one") == 2);
  CHECK(run_command("exit 3", 60s, false).code == 3);
  CHECK(run_command("kill -9 $$", 60s, false).code == 128);
  CHECK(run_command("/nowhere/program", 60s, false).code == 127);
}

TEST_CASE("a command that hangs is ended, with what it started") {
  const auto begin = Clock::now();
  const auto hung =
      run_command("echo begun; tail -f /dev/null & tail -f /dev/null; echo over", 1s, false);
  CHECK(hung.timed_out);
  CHECK_FALSE(hung.ok());
  CHECK(hung.output == "begun\n");
  CHECK(Clock::now() - begin < 60s);
  // It ended as it was asked to, in its own way.
  const auto asked =
      run_command("trap 'echo ended; exit 0' TERM; tail -f /dev/null & wait", 1s, false);
  CHECK(asked.timed_out);
  CHECK_FALSE(asked.ok());
  CHECK(asked.output == "ended\n");
}

}  // namespace
}  // namespace dlaunch::gpu_test
