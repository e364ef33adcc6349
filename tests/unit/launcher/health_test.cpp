// What an agent answers to probes of its health.
#include "launcher/watch/health.hpp"

#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

std::string told(std::string_view target, const Health& health, Clock::duration later) {
  const auto page = health_page(target, health, health.turned + later);
  return std::to_string(page.code) + " " + page.body;
}

}  // namespace

TEST_CASE("an agent is alive while its loop turns, and ready while its workers run") {
  Health health{Clock::time_point{}, unready_text(JobState::running)};
  CHECK(told("/healthz", health, turn_interval) == "200 ok\n");
  CHECK(told("/readyz?verbose", health, turn_interval) == "200 ready\n");
  CHECK(told("/metrics", health, turn_interval) ==
        "404 nothing is here; there are /healthz and /readyz\n");
  health.unready = unready_text(JobState::waiting);
  CHECK(told("/healthz", health, turn_interval) == "200 ok\n");
  CHECK(told("/readyz", health, turn_interval) ==
        "503 waiting: this node has no place in the job yet\n");
}

TEST_CASE("an agent whose loop stands still is neither") {
  const Health health{Clock::time_point{}, ""};
  const auto before = standstill_max - std::chrono::milliseconds(1);
  CHECK(told("/healthz", health, before) == "200 ok\n");
  CHECK(told("/healthz", health, standstill_max) == "503 the agent has stood still for 10 s\n");
  CHECK(told("/readyz", health, standstill_max) == "503 the agent has stood still for 10 s\n");
}

TEST_CASE("only a state in which workers run is ready") {
  for (const auto state :
       {JobState::waiting, JobState::restarting, JobState::stopping, JobState::ended}) {
    CHECK(unready_text(state).starts_with(state_text(state)));
  }
  CHECK(unready_text(JobState::running).empty());
}
