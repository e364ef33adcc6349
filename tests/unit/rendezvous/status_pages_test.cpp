#include "rendezvous/daemon/status_pages.hpp"

#include <set>
#include <sstream>
#include <string>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

const auto now = Clock::time_point(1000s);

NamedJobStatus job(const std::string& name, JobStatus::State state) {
  NamedJobStatus named;
  named.job = name;
  named.incarnation = 2;
  named.keys = 5;
  named.bytes = 640;
  named.status.state = state;
  named.status.epoch = 7;
  named.status.attempt = 1;
  named.status.nodes_min = 1;
  named.status.nodes_max = 2;
  named.status.world_size = 16;
  named.status.standing = "all 2 nodes";
  named.status.nodes = {{"a", "host-a", NodeStatus::State::running, 0, 0, 8, now - 250ms},
                        {"b", "host-b", NodeStatus::State::silent, 1, 8, 8, now - 4s}};
  return named;
}

DaemonStatus sample() {
  DaemonStatus status;
  status.now = now;
  status.up = 90s;
  status.jobs = {job("train", JobStatus::State::running), job("a b\"\n\xff", {})};
  status.jobs[1].status.state = JobStatus::State::finished;
  status.jobs[1].status.exit_code = 3;
  status.totals = {4, 2, 7, 1, 3, 5};
  status.totals.refused = {31, 32, 33, 34, 39, 38, 37, 35, 21, 36};
  status.totals.never_joined = 22;
  status.totals.memory_used = 23;
  status.totals.memory_max = 24;
  status.totals.memory_refusals = 25;
  status.totals.actions_done = 29;
  status.totals.actions_refused = 30;
  status.counters = {11, 12, 13, 14, 0};
  status.counters.failed = 26;
  status.counters.greedy = 27;
  status.counters.crowded = 28;
  status.loop_lag.add(3ms);
  status.loop_lag.add(20ms);
  status.loop_lag.add(1min);
  status.draining = true;
  status.connections_max = 928;
  status.jobs_max = 1024;
  status.state = StateFigures{{}, true, StateFigures::Lead{true, 3500ms, "10.0.0.1:2379"}};
  status.state->commits.add(20ms);
  return status;
}

struct Quiet : Feed {
  std::string next() override { return ""; }
};

StatusSource source() {
  return {.status = [] { return std::make_shared<const DaemonStatus>(sample()); },
          .figures =
              [] {
                return ServingFigures{.connections = 3,
                                      .followers = 2,
                                      .page_times = {},
                                      .process = {1024, 9, 100, 0.5},
                                      .actions_denied = 31};
              },
          .unhealthy = [] { return std::string(); },
          .unready = [] { return std::string(); },
          .backup =
              [] {
                return BackupStatus{BackupStatus::State::under_way, "nightly", "1 of 2 bytes"};
              },
          .events = [](std::string_view) { return std::make_shared<Quiet>(); }};
}

Page page(std::string_view target, std::string_view accept = "") {
  return page_at(
      {.target = target, .host = {}, .origin = {}, .accept = accept, .last_event_id = {}},
      source());
}

constexpr std::string_view openmetrics =
    "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";

std::string line_of(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start + " ")) return line.substr(start.size() + 1);
  }
  return "no line " + start;
}

}  // namespace

TEST_CASE("health and readiness") {
  CHECK(page("/healthz").code == 200);
  CHECK(page("/healthz").body == "ok\n");
  CHECK(page("/readyz").code == 200);
  StatusSource ill = source();
  ill.unready = [] { return std::string("draining"); };
  ill.unhealthy = [] { return std::string("it stands"); };
  PageRequest request;
  request.target = "/readyz";
  CHECK(page_at(request, ill).code == 503);
  CHECK(page_at(request, ill).body == "draining\n");
  request.target = "/healthz";
  CHECK(page_at(request, ill).code == 503);
  CHECK(page_at(request, ill).body == "it stands\n");
}

TEST_CASE("a loop that does not answer is told of, by every page that asks it") {
  StatusSource mute = source();
  mute.status = [] { return nullptr; };
  for (const char* target : {"/metrics", "/api/v1/jobs", "/api/v1/jobs/train"}) {
    PageRequest request;
    request.target = target;
    CHECK(page_at(request, mute).code == 503);
    CHECK(page_at(request, mute).body == "the loop that serves the agents does not answer\n");
  }
}

TEST_CASE("the page for people, and what it may load") {
  const Page html = page("/");
  CHECK(html.code == 200);
  CHECK(html.content_type == "text/html; charset=utf-8");
  CHECK(html.body.starts_with("<!doctype html>"));
  CHECK(html.policy.find("script-src 'self'") != std::string::npos);
  CHECK(html.policy.find("unsafe") == std::string::npos);
  CHECK(page("/page.js").content_type == "text/javascript; charset=utf-8");
  CHECK(page("/actions.js").content_type == "text/javascript; charset=utf-8");
  CHECK(page("/page.css").content_type == "text/css; charset=utf-8");
  CHECK(page("/events").content_type == "text/event-stream");
  CHECK(page("/events").feed);
}

TEST_CASE("unknown paths are 404, and say what is here") {
  for (const char* target :
       {"/index.html", "", "*", "/healthz/", "/api/v1/jobsx", "/api", "//healthz", "/../etc/passwd",
        "/api/v1/jobs/nobody", "/api/v1/jobs/"}) {
    CHECK_MESSAGE(page(target).code == 404, target);
  }
  CHECK(page("/api/v1/jobs/%zz").code == 400);
  CHECK(page("/api/v1/jobs/%4").code == 400);
  CHECK(page("/healthz?verbose").code == 200);
}

TEST_CASE("a job in full") {
  const Page answer = page("/api/v1/jobs/train");
  CHECK(answer.code == 200);
  CHECK(answer.content_type == "application/json");
  const auto json = nlohmann::json::parse(answer.body);
  CHECK(json["job"] == "train");
  CHECK(json["state"] == "running");
  CHECK(json["standing"] == "all 2 nodes");
  CHECK(json["epoch"] == 7);
  CHECK(json["attempt"] == 1);
  CHECK(json["incarnation"] == 2);
  CHECK(json["exit_code"].is_null());
  CHECK(json["keys"] == 5);
  CHECK(json["nodes_silent"] == 1);
  CHECK(json["heartbeat_age_ms"] == 4000);
  CHECK(json["first_failure"].is_null());
  REQUIRE(json["nodes"].size() == 2);
  CHECK(json["nodes"][1]["id"] == "b");
  CHECK(json["nodes"][1]["host"] == "host-b");
  CHECK(json["nodes"][1]["state"] == "silent");
  CHECK(json["nodes"][1]["first_rank"] == 8);
  CHECK(json["nodes"][1]["workers"] == 8);
  CHECK(json["nodes"][1]["heartbeat_age_ms"] == 4000);
}

TEST_CASE(
    "a job shows what its ranks do, and names those that are behind, as judged in one place") {
  NamedJobStatus late = job("train", JobStatus::State::running);
  auto json = nlohmann::json::parse(job_json(late, now));
  CHECK(json["foremost_call"].is_null());
  CHECK(json["ranks_behind"] == 0);
  CHECK(json["behind"].empty());
  CHECK(json["nodes"][0]["calls"].is_null());

  const auto calls = [](std::uint64_t sequence, int ranks, Clock::duration age) {
    return RankCalls{.ranks = ranks,
                     .state = RankCalls::State::waits,
                     .call = "all_reduce #" + std::to_string(sequence) + "\xff",
                     .communicator = 7,
                     .sequence = sequence,
                     .age = age,
                     .reached = {{7, 16, sequence, age}}};
  };
  const auto told = [](std::vector<RankCalls> of) {
    return std::make_shared<const std::vector<RankCalls>>(std::move(of));
  };
  // In no order, as they are kept.
  late.calls = {{1, 8, now - 1s, now, told({calls(9, 8, 10s)})},
                {0, 0, now - 1s, now, told({calls(9, 6, 11s), calls(7, 2, 20s)})}};
  json = nlohmann::json::parse(job_json(late, now));
  CHECK(json["ranks_behind"] == 2);
  REQUIRE(json["behind"].size() == 1);
  const auto& behind = json["behind"][0];
  CHECK(behind["node"] == "a");
  CHECK(behind["first_rank"] == 6);
  CHECK(behind["ranks"] == 2);
  CHECK(behind["name"] == "ranks 6-7 on node a");
  const auto sentence = behind["sentence"].get<std::string>();
  CHECK(sentence.starts_with("ranks 6-7 on node a are 2 calls behind, for 11 s: in all_reduce #7"));
  CHECK(json["foremost_call"].get<std::string>().starts_with("all_reduce #9"));
  REQUIRE(json["nodes"][0]["calls"].size() == 2);
  const auto& seen = json["nodes"][0]["calls"][1];
  CHECK(seen["first_rank"] == 6);
  CHECK(seen["ranks"] == 2);
  CHECK(seen["state"] == "waits");
  CHECK(seen["age_ms"] == 21000);
  CHECK(seen["calls_behind"] == 2);
  CHECK(seen["behind_ms"] == 11000);
  CHECK(seen["behind"] == true);
  CHECK(seen["doing"].get<std::string>().starts_with("in all_reduce #7"));
  CHECK(json["nodes"][1]["calls"][0]["behind"] == false);

  // A person reads so many of them; all are counted.
  late.calls.clear();
  for (int node = 0; node < 40; ++node) {
    late.calls.push_back({node, node, now - 1s, now, told({calls(node == 0 ? 9 : 8, 1, 20s)})});
  }
  json = nlohmann::json::parse(job_json(late, now));
  CHECK(json["ranks_behind"] == 39);
  CHECK(json["behind"].size() == 20);
}

TEST_CASE("a job that has failed shows its first failure, with its last words") {
  NamedJobStatus failed = job("train", JobStatus::State::finished);
  failed.finish = Finish{.exit_code = 1,
                         .verdict = std::nullopt,
                         .sentence = "rank 3 on host-b failed",
                         .details = RankDetails{.rank = 3,
                                                .local_rank = 1,
                                                .node = "b",
                                                .host = "host-b",
                                                .pid = 77,
                                                .time_ms = 5,
                                                .error_file = "",
                                                .message = "",
                                                .last_lines = {"CUDA error", "\xff"}}};
  const auto json = nlohmann::json::parse(job_json(failed, now));
  CHECK(json["sentence"] == "rank 3 on host-b failed");
  CHECK(json["first_failure"]["rank"] == 3);
  CHECK(json["first_failure"]["host"] == "host-b");
  CHECK(json["first_failure"]["last_lines"][0] == "CUDA error");
  // Nobody waits for the nodes of a job that is over.
  CHECK(json["heartbeat_age_ms"].is_null());
}

TEST_CASE("the list of jobs; names that are no text do not break it") {
  const auto json = nlohmann::json::parse(page("/api/v1/jobs").body);
  REQUIRE(json["jobs"].size() == 2);
  CHECK(json["jobs"][0]["nodes_present"] == 2);
  CHECK(!json["jobs"][0].contains("nodes"));
  CHECK(json["jobs"][1]["exit_code"] == 3);
  const auto other = nlohmann::json::parse(page("/api/v1/jobs/a%20b%22%0a%FF").body);
  CHECK(other["state"] == "finished");
}

TEST_CASE("metrics, in the form that is asked for") {
  CHECK(page("/metrics").content_type == "text/plain; version=0.0.4; charset=utf-8");
  const Page open = page("/metrics", openmetrics);
  CHECK(open.content_type.starts_with("application/openmetrics-text; version=1.0.0"));
  CHECK(open.body.ends_with("\n# EOF\n"));
  CHECK(open.body.find("# TYPE dlaunch_build info\n") != std::string::npos);
  CHECK(open.body.find("# TYPE dlaunch_restarts counter\n") != std::string::npos);
  const std::string text = page("/metrics").body;
  CHECK(text.find("# EOF") == std::string::npos);
  CHECK(text.find("# TYPE dlaunch_build_info gauge\n") != std::string::npos);
  CHECK(text.find("# TYPE dlaunch_restarts_total counter\n") != std::string::npos);
}

TEST_CASE("what the metrics say") {
  for (const std::string_view accept : {std::string_view(), openmetrics}) {
    const std::string text = page("/metrics", accept).body;
    CHECK(line_of(text, "dlaunch_jobs{state=\"running\"}") == "1");
    CHECK(line_of(text, "dlaunch_jobs{state=\"finished\"}") == "1");
    CHECK(line_of(text, "dlaunch_nodes{state=\"silent\"}") == "2");
    CHECK(line_of(text, "dlaunch_ranks") == "16");
    CHECK(line_of(text, "dlaunch_connections") == "4");
    CHECK(line_of(text, "dlaunch_http_connections") == "3");
    CHECK(line_of(text, "dlaunch_event_readers") == "2");
    CHECK(line_of(text, "dlaunch_draining") == "1");
    CHECK(line_of(text, "dlaunch_connections_max") == "928");
    CHECK(line_of(text, "dlaunch_jobs_max") == "1024");
    CHECK(line_of(text, "dlaunch_rounds_closed_total") == "7");
    CHECK(line_of(text, "dlaunch_restarts_total") == "1");
    CHECK(line_of(text, "dlaunch_evictions_total") == "3");
    CHECK(line_of(text, "dlaunch_connections_garbage_total") == "12");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"node\"}") == "5");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"no_secret\"}") == "31");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"wrong_secret\"}") == "32");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"withdrawn_secret\"}") == "33");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"job_limit\"}") == "21");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"hello\"}") == "36");
    CHECK(line_of(text, "dlaunch_refusals_total{kind=\"peer_limit\"}") == "28");
    CHECK(line_of(text, "dlaunch_connections_never_joined_total") == "22");
    CHECK(line_of(text, "dlaunch_connections_failed_total") == "26");
    CHECK(line_of(text, "dlaunch_connections_greedy_total") == "27");
    CHECK(line_of(text, "dlaunch_memory_used_bytes") == "23");
    CHECK(line_of(text, "dlaunch_memory_max_bytes") == "24");
    CHECK(line_of(text, "dlaunch_memory_refusals_total") == "25");
    CHECK(line_of(text, "dlaunch_job_keys{job=\"train\"}") == "5");
    CHECK(line_of(text, "dlaunch_job_bytes{job=\"a b\\\"\\n?\"}") == "640");
    CHECK(line_of(text, "dlaunch_job_nodes{job=\"train\"}") == "2");
    CHECK(line_of(text, "dlaunch_job_heartbeat_age_seconds{job=\"train\"}") == "4");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_bucket{le=\"0.001\"}") == "0");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_bucket{le=\"0.005\"}") == "1");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_bucket{le=\"5\"}") == "2");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_bucket{le=\"+Inf\"}") == "3");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_count") == "3");
    CHECK(line_of(text, "dlaunch_loop_lag_seconds_sum") == "60.023");
    CHECK(line_of(text, "dlaunch_state_commit_duration_seconds_count") == "1");
    CHECK(line_of(text, "dlaunch_state_blocked") == "1");
    CHECK(line_of(text, "dlaunch_etcd_leads") == "1");
    CHECK(line_of(text, "dlaunch_etcd_lease_remaining_seconds") == "3.5");
    CHECK(line_of(text, "dlaunch_etcd_member{member=\"10.0.0.1:2379\"}") == "1");
    CHECK(line_of(text, "process_resident_memory_bytes") == "1024");
    CHECK(line_of(text, "process_uptime_seconds") == "90");
    // Each sample belongs to the family that was announced last, and none is announced twice.
    std::istringstream lines(text);
    std::set<std::string> families;
    std::string family;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("# TYPE ")) {
        family = line.substr(7, line.find(' ', 7) - 7);
        CHECK(families.insert(family).second);
      } else if (!line.starts_with("#")) {
        CHECK_MESSAGE(line.starts_with(family), line);
      }
    }
  }
}

TEST_CASE("how the last backup is, and that there was no other") {
  CHECK(page("/api/v1/backups/nightly").code == 202);
  CHECK(page("/api/v1/backups/nightly").body == "under way: 1 of 2 bytes\n");
  CHECK(page("/api/v1/backups/other").code == 404);
  CHECK(page("/api/v1/backups/").code == 404);
  const auto code_of = [](BackupStatus::State state) {
    StatusSource now = source();
    now.backup = [state] { return BackupStatus{state, "nightly", "why"}; };
    PageRequest request;
    request.target = "/api/v1/backups/nightly?x=y";
    return page_at(request, now).code;
  };
  CHECK(code_of(BackupStatus::State::none) == 404);
  CHECK(code_of(BackupStatus::State::saved) == 200);
  CHECK(code_of(BackupStatus::State::failed) == 409);
}
