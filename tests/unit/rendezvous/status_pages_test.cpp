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
  status.totals.crowded = 21;
  status.totals.never_joined = 22;
  status.totals.memory_used = 23;
  status.totals.memory_max = 24;
  status.totals.memory_refusals = 25;
  status.counters = {11, 12, 13, 14, 0};
  status.counters.failed = 26;
  status.counters.greedy = 27;
  status.counters.crowded = 28;
  status.process = {1024, 9, 100, 0.5};
  return status;
}

Page page(std::string_view target, const std::string& unready = "") {
  return page_at(target, {.status = sample, .unready = [&] { return unready; }});
}

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
  CHECK(page("/readyz", "draining").code == 503);
  CHECK(page("/readyz", "draining").body == "draining\n");
}

TEST_CASE("unknown paths are 404, and say what is here") {
  for (const char* target : {"/", "", "*", "/healthz/", "/api/v1/jobsx", "/api", "//healthz",
                             "/../etc/passwd", "/api/v1/jobs/nobody", "/api/v1/jobs/"}) {
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
  REQUIRE(json["nodes"].size() == 2);
  CHECK(json["nodes"][1]["id"] == "b");
  CHECK(json["nodes"][1]["host"] == "host-b");
  CHECK(json["nodes"][1]["state"] == "silent");
  CHECK(json["nodes"][1]["first_rank"] == 8);
  CHECK(json["nodes"][1]["workers"] == 8);
  CHECK(json["nodes"][1]["heartbeat_age_ms"] == 4000);
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

TEST_CASE("metrics are OpenMetrics") {
  const Page answer = page("/metrics");
  CHECK(answer.content_type.starts_with("application/openmetrics-text; version=1.0.0"));
  const std::string& text = answer.body;
  CHECK(text.ends_with("\n# EOF\n"));
  CHECK(line_of(text, "dlaunch_jobs{state=\"running\"}") == "1");
  CHECK(line_of(text, "dlaunch_jobs{state=\"finished\"}") == "1");
  CHECK(line_of(text, "dlaunch_nodes{state=\"silent\"}") == "2");
  CHECK(line_of(text, "dlaunch_ranks") == "16");
  CHECK(line_of(text, "dlaunch_connections") == "4");
  CHECK(line_of(text, "dlaunch_rounds_closed_total") == "7");
  CHECK(line_of(text, "dlaunch_restarts_total") == "1");
  CHECK(line_of(text, "dlaunch_evictions_total") == "3");
  CHECK(line_of(text, "dlaunch_connections_garbage_total") == "12");
  CHECK(line_of(text, "dlaunch_connections_refused_total{limit=\"job\"}") == "21");
  CHECK(line_of(text, "dlaunch_connections_refused_total{limit=\"peer\"}") == "28");
  CHECK(line_of(text, "dlaunch_connections_never_joined_total") == "22");
  CHECK(line_of(text, "dlaunch_connections_failed_total") == "26");
  CHECK(line_of(text, "dlaunch_connections_greedy_total") == "27");
  CHECK(line_of(text, "dlaunch_memory_used_bytes") == "23");
  CHECK(line_of(text, "dlaunch_memory_max_bytes") == "24");
  CHECK(line_of(text, "dlaunch_memory_refusals_total") == "25");
  CHECK(line_of(text, "dlaunch_job_keys{job=\"train\"}") == "5");
  CHECK(line_of(text, "dlaunch_job_bytes{job=\"a b\\\"\\n?\"}") == "640");
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
