#include "launcher/job/end_report.hpp"

#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

TEST_CASE("what still runs after a signal to end the job") {
  CHECK(stopping_sentence(SIGINT, {0, 1}, std::chrono::milliseconds(28'500)) ==
        "stopping: ranks 0-1 still run; Ctrl-C again kills them, else that is done in 29 s");
  CHECK(stopping_sentence(SIGTERM, {3}, std::chrono::seconds(4)) ==
        "stopping: rank 3 still runs; another SIGTERM kills it, else that is done in 4 s");
  CHECK(ranks_running({0, 4711, 4712}, 4) == std::vector<int>{5, 6});
}

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
