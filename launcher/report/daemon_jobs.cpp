#include "launcher/report/daemon_jobs.hpp"

#include "launcher/report/table_text.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::json;
using Row = std::vector<std::string>;

/// Names and sentences come from other machines, so control characters are removed: they could
/// steer a terminal.
std::string shown(std::string text) {
  return text.empty() ? "-" : without_controls(std::move(text));
}

std::string field(const json& object, const char* name) {
  const json& value = object.at(name);
  if (value.is_null()) return "-";
  return value.is_string() ? shown(value.get<std::string>()) : value.dump();
}

std::string state_of(const json& job) {
  const std::string state = field(job, "state");
  if (job.at("draining") == true) return state + ", drained";
  return job.at("exit_code").is_null() ? state : state + ", " + field(job, "exit_code");
}

std::string nodes_of(const json& job) {
  const std::string least = field(job, "nodes_min"), most = field(job, "nodes_max");
  return field(job, "nodes_present") + " of " + (least == most ? least : least + ":" + most);
}

std::string age_of(const json& node) {
  return std::to_string(node.at("heartbeat_age_ms").get<long>() / 1000) + " s ago";
}

/// The ranks that are behind, a line each, in the daemon's words; an older daemon says nothing of
/// them.
std::string behind_text(const json& job) {
  std::string text;
  long left = job.value("ranks_behind", 0L);
  for (const json& ranks : job.value("behind", json::array())) {
    text += field(ranks, "sentence") + "\n";
    left -= ranks.at("ranks").get<long>();
  }
  if (left > 0) text += plural(left, "more rank") + (left == 1 ? " is" : " are") + " behind\n";
  return text;
}

}  // namespace

std::optional<std::string> daemon_jobs_text(std::string_view text) {
  try {
    const json all = json::parse(text);
    std::vector<Row> rows = {{"job", "state", "epoch", "attempt", "nodes", "ranks", "standing"}};
    for (const json& job : all.at("jobs")) {
      rows.push_back({field(job, "job"), state_of(job), field(job, "epoch"), field(job, "attempt"),
                      nodes_of(job), field(job, "world_size"), field(job, "standing")});
    }
    return table_text(rows);
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::optional<std::string> daemon_job_text(std::string_view text) {
  try {
    const json job = json::parse(text);
    std::string said = "job " + field(job, "job") + ": " + state_of(job) + "; epoch " +
                       field(job, "epoch") + ", attempt " + field(job, "attempt") + ", " +
                       nodes_of(job) + " nodes, " +
                       plural(job.at("world_size").get<long>(), "rank") + "\n" +
                       field(job, "standing") + "\n" + behind_text(job);
    std::vector<Row> rows = {{"node", "state", "rank", "ranks", "heard", "host"}};
    for (const json& node : job.at("nodes")) {
      rows.push_back({field(node, "id"), field(node, "state"), field(node, "node_rank"),
                      field(node, "workers"), age_of(node), field(node, "host")});
    }
    return rows.size() > 1 ? said + table_text(rows) : said;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace dlaunch::launcher
