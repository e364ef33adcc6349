// The way in which a thread starts many processes: tried out, and chosen by what the tries took.
#include "launcher/process/spawn.hpp"

#include <cstddef>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

/// A letter for each start: h, the thread keeps to its core, or a.
std::string starts(StartTrial& trial, std::size_t count, Clock::duration here,
                   Clock::duration anywhere) {
  std::string ways;
  for (std::size_t i = 0; i < count; ++i) {
    const bool keeps = trial.keeps_core();
    ways += keeps ? 'h' : 'a';
    trial.took(keeps ? here : anywhere);
  }
  return ways;
}

constexpr std::size_t rest = StartTrial::cycle - 2 * StartTrial::tries;

}  // namespace

TEST_CASE("a few starts are made each way, and the others in the one that took less") {
  StartTrial idle, busy;
  CHECK(starts(idle, StartTrial::cycle, 600us, 400us) == "aaaahhhh" + std::string(rest, 'a'));
  CHECK(starts(busy, StartTrial::cycle, 700us, 1100us) == "aaaahhhh" + std::string(rest, 'h'));
}

TEST_CASE("the processors may be busy later: it is tried out again") {
  StartTrial trial;
  starts(trial, StartTrial::cycle, 600us, 400us);
  CHECK(starts(trial, StartTrial::cycle, 700us, 1100us) == "aaaahhhh" + std::string(rest, 'h'));
}

TEST_CASE("one start that something else held up decides nothing") {
  StartTrial trial;
  starts(trial, StartTrial::tries, 700us, 1100us);
  trial.took(50ms);
  CHECK(starts(trial, StartTrial::tries - 1, 700us, 1100us) == "hhh");
  CHECK(trial.keeps_core());
}
