#include "rendezvous/daemon/status_pages.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include <nlohmann/json.hpp>

namespace dlaunch::rendezvous {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view jobs_path = "/api/v1/jobs";

std::string_view name_of(const auto& states, auto state) {
  return std::ranges::find(states, state, [](const auto& row) { return row.first; })->second;
}

Json to_json(const NodeStatus& node, Clock::time_point now) {
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - node.last_heard);
  Json json = {{"id", node.id},
               {"host", node.host},
               {"state", name_of(node_states, node.state)},
               {"node_rank", nullptr},
               {"first_rank", nullptr},
               {"workers", node.workers},
               {"heartbeat_age_ms", std::max<std::int64_t>(0, age.count())}};
  if (node.node_rank) {
    json["node_rank"] = *node.node_rank;
    json["first_rank"] = node.first_rank;
  }
  return json;
}

Json summary(const NamedJobStatus& job) {
  const JobStatus& status = job.status;
  Json json = {{"job", job.job},
               {"incarnation", job.incarnation},
               {"state", name_of(job_states, status.state)},
               {"standing", status.standing},
               {"epoch", status.epoch},
               {"attempt", status.attempt},
               {"exit_code", nullptr},
               {"nodes_min", status.nodes_min},
               {"nodes_max", status.nodes_max},
               {"nodes_present", status.nodes.size()},
               {"world_size", status.world_size},
               {"keys", job.keys},
               {"bytes", job.bytes}};
  if (status.exit_code) json["exit_code"] = *status.exit_code;
  return json;
}

/// Names come from outside and need not be UTF-8.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// Nullopt for a % that two hexadecimal digits do not follow.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  while (!text.empty()) {
    if (text.front() != '%') {
      decoded += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned value = 0;
    const auto digits = text.substr(1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2) return {};
    decoded += static_cast<char>(value);
    text.remove_prefix(3);
  }
  return decoded;
}

Page json_page(std::string body) {
  return {.code = 200, .content_type = "application/json", .body = std::move(body)};
}

Page job_page(std::string_view encoded, const StatusSource& source) {
  const auto name = percent_decoded(encoded);
  if (!name) return sentence_page(400, "a % in the path is not followed by two hexadecimal digits");
  const DaemonStatus status = source.status();
  const auto found = std::find_if(status.jobs.begin(), status.jobs.end(),
                                  [&](const auto& job) { return job.job == *name; });
  if (found == status.jobs.end()) {
    return sentence_page(404, "there is no such job; " + std::string(jobs_path) + " lists them");
  }
  return json_page(job_json(*found, status.now));
}

}  // namespace

std::string job_json(const NamedJobStatus& job, Clock::time_point now) {
  Json json = summary(job);
  json["nodes"] = Json::array();
  for (const auto& node : job.status.nodes) json["nodes"].push_back(to_json(node, now));
  return text_of(json);
}

std::string jobs_json(const DaemonStatus& status) {
  Json json = {{"jobs", Json::array()}};
  for (const auto& job : status.jobs) json["jobs"].push_back(summary(job));
  return text_of(json);
}

Page page_at(std::string_view target, const StatusSource& source) {
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/healthz") return {.body = "ok\n"};
  if (path == "/readyz") {
    const std::string reason = source.unready();
    return reason.empty() ? Page{.body = "ready\n"} : sentence_page(503, reason);
  }
  if (path == "/metrics") {
    return {.content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8",
            .body = metrics_text(source.status())};
  }
  if (path == jobs_path) return json_page(jobs_json(source.status()));
  if (path.starts_with(jobs_path) && path.substr(jobs_path.size()).starts_with('/')) {
    return job_page(path.substr(jobs_path.size() + 1), source);
  }
  return sentence_page(404,
                       "nothing is here; there are /healthz, /readyz, /metrics, /api/v1/jobs and "
                       "/api/v1/jobs/JOB");
}

}  // namespace dlaunch::rendezvous
