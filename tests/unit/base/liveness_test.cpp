#include "runtime/base/liveness.hpp"

#include "runtime/base/phrases.hpp"

#include <fstream>
#include <iterator>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

namespace {

/// What must hold, whatever the options are.
constexpr bool is_sound(const Liveness& times) {
  return times.lease > 0s &&
         // A connection that stands is worth at least as much patience as one that broke.
         times.reconnect_grace <= times.lease &&
         // A rendezvous that stood still for a lease finds the connections as it left them; and a
         // node that breaks its own finds that it has been given up already.
         times.silence_max() >= times.lease + times.reconnect_grace &&
         // What ends a wait of ours is the other end's silence, not our own busy processor.
         times.late_tick() <= std::max<Clock::duration>(times.lease / 2, 100ms) &&
         // A node says that it stood still only if others may have taken it for lost since.
         times.doubtful_after() < times.lease &&
         // A host that slept for less than its lease after the others lost their connections to it
         // is not given up: they have tried again by then.
         times.host_lost_after() >= times.silence_max() + times.retry_pause_max() &&
         // A node that learns by silence alone that its rendezvous is gone has time for a try, ...
         times.comes_back_within() >= times.silence_max() + Liveness::step_max &&
         // ... as has one that was in a pause, or in a try, when it was started anew.
         times.comes_back_within() >= times.retry_pause_max() + Liveness::step_max &&
         // All of an epoch's nodes may come one such time after its first.
         times.returns_within() >= 2 * times.comes_back_within();
}

static_assert(is_sound({}));
static_assert(Liveness::of(1s, 5) == Liveness{});

}  // namespace

TEST_CASE("all times follow from the keep-alive, and fit together") {
  for (const Clock::duration heartbeat : {1ms, 50ms, 200ms, 500ms, 1000ms, 5000ms, 3600'000ms}) {
    for (const int missed : {1, 2, 3, 5, 60, 1000}) {
      const auto times = Liveness::of(heartbeat, missed);
      CAPTURE(duration_text(times.lease));
      CHECK(times.lease == heartbeat * missed);
      CHECK(is_sound(times));
    }
  }
}

TEST_CASE("times without an end add up to such a time") {
  const Liveness endless{Clock::duration::max(), Clock::duration::max()};
  CHECK(endless.silence_max() == Clock::duration::max());
  CHECK(endless.host_lost_after() == Clock::duration::max());
  CHECK(endless.returns_within() == Clock::duration::max());
  CHECK(endless.successor_patience() == Clock::duration::max());
  CHECK(Liveness::of(Clock::duration::max() / 2, 3).lease == Clock::duration::max());
}

TEST_CASE("the manual tells the default times") {
  std::ifstream in(DLAUNCH_SOURCE_DIR "/docs/operations.md");
  const std::string manual{std::istreambuf_iterator<char>(in), {}};
  const Liveness times;
  const auto tells = [&](const std::string& name, Clock::duration time) {
    return manual.find("| " + name + " | " + duration_text(time) + " | ") != std::string::npos;
  };
  CHECK(tells("lease", times.lease));
  CHECK(tells("reconnect grace", times.reconnect_grace));
  CHECK(tells("silence", times.silence_max()));
  CHECK(tells("host", times.host_lost_after()));
  CHECK(tells("retry", times.retry_pause_max()));
  CHECK(tells("comeback", times.comes_back_within()));
  CHECK(tells("return", times.returns_within()));
}
