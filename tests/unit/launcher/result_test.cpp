#include "launcher/report/result.hpp"

#include "launcher/cli/read_request.hpp"

#include <csignal>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using namespace dlaunch::launcher;

namespace {

dlaunch::WallClock::time_point at(int ms) {
  return dlaunch::WallClock::time_point(std::chrono::milliseconds(1'795'178'710'000 + ms));
}

const std::vector<std::string> environment = {"DLAUNCH_ROLE=trainer", "PASSWORD=xyzzy"};

JobSpec spec() {
  const std::vector<std::string> arguments = {"--nproc-per-node=2", "prog", "--x"};
  return std::get<JobSpec>(read_job(arguments, environment));
}

JobResult example() {
  JobResult result;
  result.job = "job-7";
  result.host = "box";
  result.outcome = "failed";
  result.exit_code = 137;
  result.started = at(0);
  result.ended = at(1500);
  Assignment assignment;
  assignment.job = "job-7";
  assignment.local_size = assignment.world_size = 2;
  assignment.run_directory = "/log/run";
  AttemptResult attempt;
  attempt.plan = make_plan(spec(), Machine{}, environment, assignment);
  attempt.started = at(10);
  attempt.ended = at(1400);
  dlaunch::Verdict verdict;
  verdict.ranks = {1};
  verdict.exit_code = 137;
  verdict.signal = SIGKILL;
  attempt.verdict = verdict;
  WorkerEnd end;
  end.rank = end.local_rank = 1;
  end.host = "box";
  end.pid = 4711;
  end.status = {.code = 0, .signal = SIGKILL, .core_dumped = false};
  end.time = at(1000);
  end.last_lines = {"not UTF-8: \xff"};
  attempt.ends.push_back(end);
  result.attempts.push_back(attempt);
  return result;
}

}  // namespace

TEST_CASE("the whole story as JSON") {
  const auto text = to_json(example(), spec());
  CHECK(text.ends_with("}\n"));
  CHECK(text.find("xyzzy") == std::string::npos);
  const auto json = nlohmann::json::parse(text);
  CHECK(json["format"] == 1);
  CHECK(json["job"] == "job-7");
  CHECK(json["outcome"] == "failed");
  CHECK(json["exit_code"] == 137);
  CHECK(json["reason"].is_null());
  CHECK(json["started"] == "2026-11-20T12:45:10.000Z");
  CHECK(json["seconds"] == 1.5);
  CHECK(json["program"] == nlohmann::json({"prog", "--x"}));
  CHECK(json["options"]["role"] ==
        nlohmann::json({{"value", "trainer"}, {"origin", "variable"}, {"where", "DLAUNCH_ROLE"}}));
  REQUIRE(json["attempts"].size() == 1);
  const auto& attempt = json["attempts"][0];
  CHECK(attempt["attempt"] == 0);
  CHECK(attempt["world_size"] == 2);
  CHECK(attempt["root_cause"] == 1);
  CHECK(attempt["seconds"] == 1.39);
  REQUIRE(attempt["workers"].size() == 2);
  CHECK(attempt["workers"][0]["end"].is_null());
  const auto& worker = attempt["workers"][1];
  CHECK(worker["order"] == 0);
  CHECK(worker["end"]["pid"] == 4711);
  CHECK(worker["end"]["signal"] == "SIGKILL");
  CHECK(worker["end"]["exit_code"].is_null());
  CHECK(worker["end"]["last_stderr_lines"][0] == "not UTF-8: \xef\xbf\xbd");
}

TEST_CASE("a job that never started is a story, too") {
  JobResult result;
  result.job = "j";
  result.outcome = "failed";
  result.exit_code = 127;
  const auto json = nlohmann::json::parse(to_json(result, spec()));
  CHECK(json["attempts"].empty());
  CHECK(json["exit_code"] == 127);
}
