#include "launcher/job/end_report.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

TEST_CASE("stragglers are told of by their ranks in the world, and what becomes of them") {
  TellStragglers told;
  told.ended = {0, 2, 3};
  told.running = {1};
  told.since = std::chrono::seconds(20);
  CHECK(straggler_sentence(told, 4, "") == "ranks 4,6-7 exited 0 20 s ago, rank 5 still runs");
  told.ended = {};
  told.running = {0, 1};
  CHECK(straggler_sentence(told, 4, "rank 1 on a") ==
        "rank 1 on a exited 0 20 s ago, ranks 4-5 still run");
  JobSpec options;
  CHECK(straggler_outlook(told, options) == "; --straggler-timeout ends such a job");
  options.straggler_timeout = std::chrono::seconds(60);
  CHECK(straggler_outlook(told, options).empty());
  told.over = true;
  CHECK(straggler_outlook(told, options) == ": the job is ended (--straggler-timeout)");
}

TEST_CASE("a job that ended with 0 has not failed, though this node's workers have") {
  Ended last;
  last.outcome = Outcome::failed;
  last.exit_code = 3;
  CHECK(job_end(last, 0, false, false).outcome == Outcome::succeeded);
  CHECK(job_end(last, 3, false, false).outcome == Outcome::failed);
}
