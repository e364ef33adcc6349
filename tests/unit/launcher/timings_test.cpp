#include "launcher/report/timings.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

namespace {

const Clock::time_point zero{1h};

/// A launch with all its phases.
LaunchTimes whole() {
  return {.begun = zero,
          .agent = zero + 3ms,
          .placed = zero + 1003ms,
          .started = zero + 1007ms,
          .joined = zero + 1027ms,
          .first_ended = zero + 61s,
          .nothing_left = zero + 61s + 15ms};
}

}  // namespace

TEST_CASE("the phases of a launch, in order") {
  CHECK(timings_text(phases_of(whole())) ==
        "options 3 ms, rendezvous 1.0 s, start 4 ms, first join 20 ms, run 60 s, stop 15 ms");
}

TEST_CASE("a phase that did not come is left out") {
  auto times = whole();
  times.joined.reset();
  CHECK(timings_text(phases_of(times)) ==
        "options 3 ms, rendezvous 1.0 s, start 4 ms, run 60 s, stop 15 ms");
  // One rank joined when another one had ended.
  times.joined = zero + 61s + 5ms;
  CHECK(phases_of(times).size() == 5);
  CHECK(phases_of(LaunchTimes{.begun = zero}).empty());
}

TEST_CASE("of another attempt the meeting counts from the last one's end") {
  auto times = whole();
  times.begin_again();
  LaunchTimes::mark(times.placed, zero + 62s);
  LaunchTimes::mark(times.placed, zero + 63s);  // The first time counts.
  CHECK(phases_of(times) == std::vector<Phase>{{"rendezvous", 985ms}});
}

TEST_CASE("timings as JSON") {
  const WallClock::time_point now{std::chrono::milliseconds(1'795'178'710'250)};
  CHECK(timings_json({{"options", 3ms}, {"run", 1500us}}, "j", "n", 1, now) ==
        R"({"time":"2026-11-20T12:45:10.250Z","level":"info","event":"timings",)"
        R"("message":"options 3 ms, run 2 ms","job":"j","node":"n","attempt":1,)"
        R"("seconds":{"options":0.003,"run":0.0015}})"
        "\n");
}
