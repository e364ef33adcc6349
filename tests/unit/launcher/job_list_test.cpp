#include "launcher/report/job_list.hpp"

#include <chrono>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;

TEST_CASE("jobs are listed in columns, and as JSON") {
  const WallClock::time_point now(1000h);
  FoundJob runs{.entry = {.job = "demo",
                          .node = "n0",
                          .host = "h",
                          .state = JobState::running,
                          .ranks_here = 4,
                          .world_size = 16,
                          .attempt = 2,
                          .began = now - 3h,
                          .front_started = 1,
                          .program = "./train --epochs 3"},
                .agent = 71,
                .front = 70};
  FoundJob waits{.entry = {.job = "a", .node = "n1", .host = "h"}, .agent = 0, .front = 0};
  waits.entry.ranks_here = 1;
  waits.entry.began = now + 1s;  // Its clock is another container's.
  waits.entry.program = std::string(200, 'x');
  const std::vector<FoundJob> both = {waits, runs};
  CHECK(list_text(both, now) ==
        "job   state    ranks    age   pid  program\n"
        "a     waiting  1        0 ms  -    " +
            std::string(80, 'x') +
            "...\n"
            "demo  running  4 of 16  3 h   70   ./train --epochs 3\n");
  const std::string text = list_json(both, now);
  const auto first = nlohmann::json::parse(text.substr(0, text.find('\n')));
  CHECK(first["job"] == "a");
  CHECK(first["state"] == "waiting");
  CHECK(first["world_size"].is_null());
  CHECK(first["pid"].is_null());
  const auto second = nlohmann::json::parse(text.substr(text.find('\n') + 1));
  CHECK(second["age"] == 10800.0);
  CHECK(second["world_size"] == 16);
  CHECK(second["attempt"] == 2);
  CHECK(second["pid"] == 70);
  CHECK(second["agent"] == 71);
  CHECK(second["program"] == "./train --epochs 3");
}

TEST_CASE("what becomes of a job without a node is told") {
  using Then = JobDrained::Then;
  CHECK(drained_text({Then::goes_on, 2, 1}) == "goes on without it, with 2 nodes");
  CHECK(drained_text({Then::too_few, 1, 2}) ==
        "needs 2 nodes, has 1 node without it, and waits for another one");
  CHECK(drained_text({Then::only_node, 0, 1}) == "ends: it has no other node");
}
