#include "rendezvous/daemon/status_pages.hpp"

#include "rendezvous/daemon/page_assets.hpp"
#include "rendezvous/http/request.hpp"
#include "rendezvous/lag/lag.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace dlaunch::rendezvous {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view backups_path = "/api/v1/backups/";

std::string_view name_of(const auto& states, auto state) {
  return std::ranges::find(states, state, [](const auto& row) { return row.first; })->second;
}

/// Not below 0: a node may have been heard later than the snapshot began.
std::int64_t age_ms(Clock::duration age) {
  return std::max<std::int64_t>(0,
                                std::chrono::duration_cast<std::chrono::milliseconds>(age).count());
}

/// The most that are listed, as many as a person reads; all are counted.
constexpr std::size_t behind_shown_max = 20;

Json to_json(const RanksSeen& seen) {
  return {{"first_rank", seen.first_rank},
          {"ranks", seen.calls->ranks},
          {"state", name_of(call_states, seen.calls->state)},
          {"call", seen.calls->call},
          {"doing", doing_text(seen)},
          {"age_ms", age_ms(seen.age)},
          {"calls_behind", seen.lag.calls},
          {"behind_ms", age_ms(seen.lag.time)},
          {"behind", seen.lag.is_behind()}};
}

/// Sentences about the ranks that are behind.
Json behind_json(const JobLag& lag, const JobStatus& status) {
  std::map<int, std::string_view> names;
  for (const auto& node : status.nodes) {
    if (node.node_rank) names[*node.node_rank] = node.id;
  }
  Json json = Json::array();
  for (const RanksSeen* seen : lag.behind()) {
    if (json.size() == behind_shown_max) break;
    const auto node = names[seen->node_rank];
    json.push_back({{"node", node},
                    {"first_rank", seen->first_rank},
                    {"ranks", seen->calls->ranks},
                    {"name", name_of(*seen, node)},
                    {"sentence", lag.sentence(*seen, node)}});
  }
  return json;
}

/// The activity of each node's ranks, by node rank.
std::map<int, Json> calls_json(const JobLag& lag) {
  std::map<int, Json> nodes;
  for (const auto& seen : lag.ranks) nodes[seen.node_rank].push_back(to_json(seen));
  return nodes;
}

Json to_json(const NodeStatus& node, Clock::time_point now) {
  Json json = {{"id", node.id},
               {"host", node.host},
               {"state", name_of(node_states, node.state)},
               {"node_rank", nullptr},
               {"first_rank", nullptr},
               {"workers", node.workers},
               {"heartbeat_age_ms", age_ms(now - node.last_heard)}};
  if (node.node_rank) {
    json["node_rank"] = *node.node_rank;
    json["first_rank"] = node.first_rank;
  }
  return json;
}

/// The rank that is to blame, and its last words.
Json to_json(const RankDetails& rank) {
  return {{"rank", rank.rank},
          {"local_rank", rank.local_rank},
          {"node", rank.node},
          {"host", rank.host},
          {"pid", rank.pid},
          {"time_ms", rank.time_ms},
          {"message", rank.message},
          {"error_file", rank.error_file},
          {"last_lines", rank.last_lines}};
}

Json summary(const NamedJobStatus& job, const JobLag& lag, Clock::time_point now) {
  const JobStatus& status = job.status;
  const bool ended = job.finish && !job.finish->sentence.empty();
  Json json = {{"job", job.job},
               {"incarnation", job.incarnation},
               {"state", name_of(job_states, status.state)},
               {"standing", ended ? job.finish->sentence : status.standing},
               {"epoch", status.epoch},
               {"attempt", status.attempt},
               {"exit_code", nullptr},
               {"nodes_min", status.nodes_min},
               {"nodes_max", status.nodes_max},
               {"nodes_present", status.nodes.size()},
               {"nodes_silent",
                std::ranges::count(status.nodes, NodeStatus::State::silent, &NodeStatus::state)},
               {"heartbeat_age_ms", nullptr},
               {"world_size", status.world_size},
               {"ranks_behind", lag.ranks_behind},
               {"draining", status.draining},
               {"keys", job.keys},
               {"bytes", job.bytes}};
  if (status.exit_code) json["exit_code"] = *status.exit_code;
  if (const auto age = oldest_heartbeat(job, now)) json["heartbeat_age_ms"] = age_ms(*age);
  return json;
}

/// Names come from outside and need not be UTF-8.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Page json_page(std::string body) {
  return {.code = 200, .content_type = "application/json", .body = std::move(body)};
}

Page no_answer() { return sentence_page(503, "the loop that serves the agents does not answer"); }

Page job_page(std::string_view encoded, const DaemonStatus& status) {
  const auto name = percent_decoded(encoded);
  if (!name) return sentence_page(400, "a % in the path is not followed by two hexadecimal digits");
  const auto found = std::ranges::find(status.jobs, *name, &NamedJobStatus::job);
  if (found == status.jobs.end()) {
    return sentence_page(404, "there is no such job; " + std::string(jobs_path) + " lists them");
  }
  return json_page(job_json(*found, status.now));
}

/// The state of a backup: 202 while it is being made, so that a script need not read the sentence.
Page backup_page(std::string_view name, const BackupStatus& last) {
  if (last.state == BackupStatus::State::none || last.name != name) {
    return sentence_page(404,
                         "this is not the last backup that was asked for since dlaunchd was "
                         "started");
  }
  switch (last.state) {
    case BackupStatus::State::none:
    case BackupStatus::State::failed:
      break;
    case BackupStatus::State::under_way:
      return sentence_page(202, "under way: " + last.sentence);
    case BackupStatus::State::saved:
      return sentence_page(200, last.sentence);
  }
  return sentence_page(409, "it failed: " + last.sentence);
}

Page metrics_page(std::string_view accept, const StatusSource& source) {
  const auto status = source.status();
  if (!status) return no_answer();
  const bool open = prefers_openmetrics(accept);
  return {.content_type = open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                               : "text/plain; version=0.0.4; charset=utf-8",
          .body = metrics_text(*status, source.figures(),
                               open ? MetricsForm::openmetrics : MetricsForm::prometheus)};
}

/// Nullopt where there is no such file.
std::optional<Page> asset_page(std::string_view path) {
  for (const PageAsset& asset : page_assets()) {
    if (asset.path != path) continue;
    return Page{.content_type = std::string(asset.content_type),
                .body = std::string(asset.text),
                .policy =
                    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                    "'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Clock::duration> oldest_heartbeat(const NamedJobStatus& job, Clock::time_point now) {
  const auto& nodes = job.status.nodes;
  if (nodes.empty() || job.status.state == JobStatus::State::finished) return std::nullopt;
  return now - std::ranges::min(nodes, {}, &NodeStatus::last_heard).last_heard;
}

std::string job_json(const NamedJobStatus& job, Clock::time_point now) {
  const JobLag lag = judge_lag(job.calls, job.status.world_size);
  Json json = summary(job, lag, now);
  json["sentence"] = nullptr;
  json["first_failure"] = nullptr;
  if (job.finish) {
    json["sentence"] = job.finish->sentence;
    if (job.finish->details) json["first_failure"] = to_json(*job.finish->details);
  }
  json["foremost_call"] = nullptr;
  if (!lag.foremost.empty()) json["foremost_call"] = lag.foremost.front().call;
  json["behind"] = behind_json(lag, job.status);
  json["nodes"] = Json::array();
  auto calls = calls_json(lag);
  for (const auto& node : job.status.nodes) {
    Json shown = to_json(node, now);
    shown["calls"] = node.node_rank ? std::move(calls[*node.node_rank]) : Json();
    json["nodes"].push_back(std::move(shown));
  }
  return text_of(json);
}

std::string jobs_json(const DaemonStatus& status) {
  Json json = {{"jobs", Json::array()}};
  for (const auto& job : status.jobs) {
    json["jobs"].push_back(summary(job, judge_lag(job.calls, job.status.world_size), status.now));
  }
  return text_of(json);
}

Page page_at(const PageRequest& request, const StatusSource& source) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  if (path == "/healthz") {
    const std::string reason = source.unhealthy();
    return reason.empty() ? sentence_page(200, "ok") : sentence_page(503, reason);
  }
  if (path == "/readyz") {
    const std::string reason = source.unready();
    return reason.empty() ? sentence_page(200, "ready") : sentence_page(503, reason);
  }
  if (path == "/metrics") return metrics_page(request.accept, source);
  if (path == "/events") {
    return {.content_type = "text/event-stream", .feed = source.events(request.last_event_id)};
  }
  if (path == jobs_path) {
    const auto status = source.status();
    return status ? json_page(jobs_json(*status)) : no_answer();
  }
  if (path.starts_with(jobs_path) && path.substr(jobs_path.size()).starts_with('/')) {
    const auto status = source.status();
    return status ? job_page(path.substr(jobs_path.size() + 1), *status) : no_answer();
  }
  if (path.starts_with(backups_path)) {
    return backup_page(path.substr(backups_path.size()), source.backup());
  }
  if (auto asset = asset_page(path)) return *std::move(asset);
  return sentence_page(404,
                       "nothing is here; there are /, /healthz, /readyz, /metrics, /events, "
                       "/api/v1/jobs, /api/v1/jobs/JOB and /api/v1/backups/NAME");
}

}  // namespace dlaunch::rendezvous
