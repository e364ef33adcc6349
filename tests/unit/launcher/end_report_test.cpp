#include "launcher/job/end_report.hpp"

#include "launcher/job/job_deadline.hpp"

#include <csignal>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;

TEST_CASE("what still runs after a signal to end the job") {
  CHECK(stopping_sentence(SIGINT, {0, 1}, std::chrono::milliseconds(28'500)) ==
        "stopping: ranks 0-1 still run; Ctrl-C again kills them, or wait 29 s");
  CHECK(stopping_sentence(SIGTERM, {3}, std::chrono::seconds(4)) ==
        "stopping: rank 3 still runs; another SIGTERM kills it, or wait 4 s");
  CHECK(stopping_sentence(0, {3}, std::chrono::milliseconds(24'900)) ==
        "stopping: rank 3 still runs; it is killed in 25 s");
  CHECK(stopping_sentence(0, {2, 3}, std::chrono::seconds(4)) ==
        "stopping: ranks 2-3 still run; they are killed in 4 s");
  // Another SIGHUP does nothing, and a time that is over is nothing to wait for.
  CHECK(stopping_sentence(SIGHUP, {3}, std::chrono::seconds(4)) ==
        "stopping: rank 3 still runs; it is killed in 4 s");
  CHECK(stopping_sentence(SIGTERM, {3}, -std::chrono::milliseconds(2)) == "");
  CHECK(ranks_running({0, 4711, 4712}, 4) == std::vector<int>{5, 6});
}

TEST_CASE("the deadline, and who is told of it") {
  const WallClock::time_point at = std::chrono::sys_seconds(std::chrono::seconds(1795442400));
  CHECK(deadline_sentence(at) == "the deadline 2026-11-23T14:00:00Z has come");
  CHECK(deadline_notice(at, std::chrono::milliseconds(59'900)) ==
        "the job ends in 60 s, at its deadline 2026-11-23T14:00:00Z");
  CHECK(deadline_notice(at, -std::chrono::seconds(9)) ==
        "the job ends in 0 s, at its deadline 2026-11-23T14:00:00Z");
  CHECK(told_text(SIGUSR1, {0, 1}) == "; ranks 0-1 are told by SIGUSR1");
  CHECK(told_text(SIGUSR1, {3}) == "; rank 3 is told by SIGUSR1");
  CHECK(told_text(SIGUSR2, {}) == "; no worker here catches SIGUSR2");
}

TEST_CASE("a deadline is so long after the start, or a time, unless a scheduler's is past") {
  const auto at = std::chrono::sys_seconds(std::chrono::seconds(1795442400));
  const WallClock::time_point now = at - std::chrono::minutes(1);
  CHECK_FALSE(find_deadline({}, now).at);
  CHECK(find_deadline({.after = std::chrono::minutes(2)}, now).at == at + std::chrono::minutes(1));
  CHECK(find_deadline({.at = at}, now).at == at);
  CHECK(find_deadline({.at = at}, at + std::chrono::hours(1)).at == at);
  CHECK(find_deadline({.at = at, .by_scheduler = true}, now).note.empty());
  const auto past = find_deadline({.at = at, .by_scheduler = true}, at);
  CHECK_FALSE(past.at);
  CHECK(past.note ==
        "the scheduler's end of the job, 2026-11-23T14:00:00Z, is past: this job has no deadline "
        "(--deadline)");
}

TEST_CASE("a deadline is put off for a worker, and no further than it may be") {
  using namespace std::chrono_literals;
  const WallClock::time_point at = std::chrono::sys_seconds(std::chrono::seconds(1795442400));
  const auto latest = at + 2min;
  CHECK(put_off(at, latest, at - 30s, 90s) == PutOff{at + 1min, true, true});
  // There is that much time anyway, and what was granted stays.
  CHECK(put_off(at, latest, at - 30s, 20s) == PutOff{at, false, true});
  CHECK(put_off(at, latest, at - 30s, 30500ms) == PutOff{at, false, true});
  CHECK(put_off(at, latest, at - 30s, 1h) == PutOff{latest, true, false});
  CHECK(put_off(latest, latest, at, 1h) == PutOff{latest, false, false});
  CHECK(put_off_sentence({at, true, true}, 90s) ==
        "the deadline is put off to 2026-11-23T14:00:00Z: a worker needs 90 s");
  CHECK(put_off_sentence({at, true, false}, 90s) ==
        "the deadline is put off to 2026-11-23T14:00:00Z, the latest there may be "
        "(--deadline-latest): a worker needs 90 s");
  CHECK(put_off_sentence({at, false, false}, 90s) ==
        "a worker needs 90 s, and the deadline 2026-11-23T14:00:00Z cannot be put off further "
        "(--deadline-latest)");
}

TEST_CASE("the latest time is never before the deadline") {
  const auto at = std::chrono::sys_seconds(std::chrono::seconds(1795442400));
  const WallClock::time_point now = at - std::chrono::minutes(1);
  CHECK(find_latest({}, at, now) == at);
  CHECK(find_latest({.after = std::chrono::minutes(5)}, at, now) == at + std::chrono::minutes(4));
  CHECK(find_latest({.after = std::chrono::seconds(5)}, at, now) == at);
  CHECK(find_latest({.at = at + std::chrono::hours(1)}, at, now) == at + std::chrono::hours(1));
  CHECK(find_latest({.at = at - std::chrono::hours(1), .by_scheduler = true}, at, now) == at);
}

TEST_CASE("stragglers are told of by their ranks in the world, and what becomes of them") {
  TellStragglers told;
  told.ended = {0, 2, 3};
  told.running = {1};
  told.since = std::chrono::seconds(20);
  CHECK(straggler_sentence(told, 4, "") ==
        "ranks 4,6-7 exited with 0, 20 s ago, and rank 5 still runs");
  told.ended = {};
  told.running = {0, 1};
  CHECK(straggler_sentence(told, 4, "rank 1 on a") ==
        "rank 1 on a exited with 0, 20 s ago, and ranks 4-5 still run");
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
