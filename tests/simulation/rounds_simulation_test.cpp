// Many jobs, each from a seed, with everything that may go wrong between nodes and a rendezvous.
// DLAUNCH_SIMULATION_SEED=N tells the story of one, beside DLAUNCH_SIMULATION_SPARES=1 the one with
// spares, and DLAUNCH_SIMULATION_LATE=1 the one with late admissions; DLAUNCH_TEST_FULL=1 runs two
// hundred times as many.
#include "tests/simulation/rounds_world.hpp"
#include "tests/support/expect.hpp"

#include <cstdlib>
#include <map>
#include <string>

#include <doctest/doctest.h>

namespace dlaunch::rendezvous::simulation {

TEST_CASE("whatever goes wrong, one rank map for an epoch, and an end for all alike") {
  const char* one = std::getenv("DLAUNCH_SIMULATION_SEED");
  if (one) {
    const Story story{.spares = std::getenv("DLAUNCH_SIMULATION_SPARES") != nullptr,
                      .late_admissions = std::getenv("DLAUNCH_SIMULATION_LATE") != nullptr};
    const Outcome outcome = World(static_cast<unsigned>(std::stoul(one)), true, story).run();
    CHECK_MESSAGE(outcome.violation.empty(), outcome.violation);
    return;
  }
  const unsigned seeds = testing::is_full() ? 100'000 : 500;
  std::uint64_t epochs = 0, events = 0;
  int faults = 0, losses = 0;
  std::map<int, int> codes;
  for (unsigned seed = 0; seed < seeds; ++seed) {
    const Outcome outcome = World(seed, false).run();
    CHECK_MESSAGE(outcome.violation.empty(),
                  "DLAUNCH_SIMULATION_SEED=" << seed << " replays: " << outcome.violation);
    epochs += outcome.epochs;
    events += outcome.events;
    faults += outcome.faults;
    losses += outcome.losses;
    ++codes[outcome.exit_code];
  }
  // Seeds that have found something once.
  for (const unsigned seed : {9570u, 18896u, 60471u, 76674u}) {
    const Outcome outcome = World(seed, false).run();
    CHECK_MESSAGE(outcome.violation.empty(),
                  "DLAUNCH_SIMULATION_SEED=" << seed << " replays: " << outcome.violation);
  }
  std::string ends;
  for (const auto& [code, count] : codes) {
    ends += " " + std::to_string(code) + ":" + std::to_string(count);
  }
  MESSAGE(seeds << " jobs, " << epochs << " epochs, " << faults << " faults, " << losses
                << " losses, " << events << " events; ends by code:" << ends);
  // Half of the seeds tell other stories, with spares and with late admissions.
  std::uint64_t with_spares = 0, with_late_admissions = 0;
  for (unsigned seed = 0; seed < seeds / 2; ++seed) {
    const Outcome outcome = World(seed, false, {.spares = true}).run();
    CHECK_MESSAGE(outcome.violation.empty(), "DLAUNCH_SIMULATION_SPARES=1 DLAUNCH_SIMULATION_SEED="
                                                 << seed << " replays: " << outcome.violation);
    with_spares += outcome.epochs;
    const Outcome late = World(seed, false, {.late_admissions = true}).run();
    CHECK_MESSAGE(late.violation.empty(), "DLAUNCH_SIMULATION_LATE=1 DLAUNCH_SIMULATION_SEED="
                                              << seed << " replays: " << late.violation);
    with_late_admissions += late.epochs;
  }
  CHECK(with_spares > seeds / 2);
  CHECK(with_late_admissions > seeds / 2);
  // A simulation in which nothing happens proves nothing.
  CHECK(epochs > seeds);
  CHECK(losses > static_cast<int>(seeds));
  CHECK(codes[0] > static_cast<int>(seeds / 10));
  CHECK(codes[79] > 0);
  CHECK(codes[143] > 0);
}

}  // namespace dlaunch::rendezvous::simulation
