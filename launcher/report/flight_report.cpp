#include "launcher/report/flight_report.hpp"

#include "launcher/report/divergence.hpp"
#include "launcher/report/json_text.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::ordered_json;

constexpr int flight_version = 1;

/// Makes JSON; a program's text may have any encoding. A flight gets several lines, since people
/// read it.
std::string dumped(const ordered_json& value, int indent) {
  return value.dump(indent, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// A hash, as text: readers of JSON do not keep such large numbers exactly.
std::string hexadecimal(std::uint64_t hash) {
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

const char* state_text(RankSight::State state) {
  switch (state) {
    case RankSight::State::running:
      return "running";
    case RankSight::State::stopped:
      return "stopped";
    case RankSight::State::ended:
      return "ended";
  }
  return "";
}

const char* kind_text(Flight::Kind kind) {
  switch (kind) {
    case Flight::Kind::call:
      return "call";
    case Flight::Kind::start:
      return "start";
    case Flight::Kind::wait:
      return "wait";
    case Flight::Kind::aside:
      return "aside";
  }
  return "";
}

double seconds(auto duration) {
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::microseconds>(duration).count()) /
         1e6;
}

/// Seconds since 1970 of one of the node's times.
double wall_seconds(const NodeSnapshot& node, Clock::time_point at) {
  return seconds(node.wall.time_since_epoch() - (node.taken - at));
}

enum class Groups { alive, all };

ordered_json rank_json(const NodeSnapshot& node, const RankSight& rank, Groups shown) {
  ordered_json out;
  out["rank"] = rank.rank;
  out["pid"] = rank.pid;
  out["state"] = state_text(rank.state);
  out["end"] = text_or_null(rank.end);
  out["ended_seconds_ago"] =
      rank.ended ? ordered_json(seconds(node.taken - *rank.ended)) : ordered_json(nullptr);
  out["member"] = rank.member;
  out["doing"] = rank.doing;
  out["calls"] = rank.log.begun;
  auto& groups = out["communicators"] = ordered_json::array();
  for (const auto& group : rank.log.groups) {
    if (group.ended && shown == Groups::alive) continue;
    groups.push_back({{"id", group.communicator},
                      {"name", group.name},
                      {"rank", group.rank},
                      {"size", group.size},
                      {"sequence", group.begun},
                      {"ended", group.ended}});
  }
  return out;
}

ordered_json call_json(const NodeSnapshot& node, const FlightCall& call, const CallNames& names) {
  const bool is_message = call.sequence == 0;
  constexpr std::uint64_t any_tag = ~std::uint64_t{0};
  ordered_json out;
  out["number"] = call.number;
  out["communicator"] = call.communicator;
  out["communicator_name"] = text_or_null(names.group);
  out["op"] = names.op;
  out["owner"] = text_or_null(names.owner);
  out["purpose"] = text_or_null(names.purpose);
  out["kind"] = kind_text(call.kind);
  out["sequence"] = is_message ? ordered_json(nullptr) : ordered_json(call.sequence);
  out["dtype"] = text_or_null(names.dtype);
  const bool varies = call.count == ~std::uint64_t{0};
  out["count"] = varies ? ordered_json(nullptr) : ordered_json(call.count);
  out["reduction"] = text_or_null(names.reduction);
  const ordered_json place = call.place < 0 ? ordered_json(nullptr) : ordered_json(call.place);
  out[is_message ? "peer" : "root"] = place;
  if (is_message) {
    out["tag"] = call.argument == any_tag ? ordered_json(nullptr) : ordered_json(call.argument);
  } else {
    out["argument"] = hexadecimal(call.argument);
  }
  out["site"] = text_or_null(names.site);
  out["began"] = wall_seconds(node, call.began);
  out["ended"] = call.ended ? ordered_json(wall_seconds(node, *call.ended)) : ordered_json(nullptr);
  out["state"] = !call.ended ? "under way" : call.failed ? "failed" : "done";
  return out;
}

/// The head, from node rank 0's data if it is there.
ordered_json head_json(const JobSnapshot& job) {
  const NodeSnapshot& node = job.nodes.front();
  ordered_json out;
  out["version"] = flight_version;
  out["job"] = node.job;
  out["node"] = node.node;
  out["host"] = node.host;
  out["agent"] = node.agent;
  out["node_rank"] = node.node_rank;
  out["nodes"] = node.node_count;
  out["epoch"] = node.epoch;
  out["attempt"] = node.attempt;
  out["world_size"] = node.world_size;
  return out;
}

struct Seen {
  const NodeSnapshot* node;
  const RankSight* rank;
};

std::vector<Seen> ranks_of(const JobSnapshot& job) {
  std::vector<Seen> ranks;
  for (const auto& node : job.nodes) {
    for (const auto& rank : node.ranks) ranks.push_back({&node, &rank});
  }
  std::ranges::stable_sort(ranks, {}, [](const Seen& seen) { return seen.rank->rank; });
  return ranks;
}

const std::string& stuck_of(const JobSnapshot& job) {
  const auto told = std::ranges::find_if(job.nodes, [](const auto& n) { return !n.stuck.empty(); });
  return told == job.nodes.end() ? job.nodes.front().stuck : told->stuck;
}

bool is_of(const std::optional<Divergence>& found, const FlightCall& call) {
  return found && call.communicator == found->call.communicator &&
         call.sequence == found->call.sequence && call.kind != Flight::Kind::aside;
}

ordered_json divergence_json(const std::optional<Divergence>& found,
                             const std::vector<Seen>& ranks) {
  if (!found) return nullptr;
  ordered_json out;
  out["communicator"] = found->call.communicator;
  out["communicator_name"] = nullptr;
  out["sequence"] = found->call.sequence;
  out["kind"] = found->differs ? "mismatch" : "absent";
  auto& calls = out["calls"] = ordered_json::array();
  for (const auto& [node, rank] : ranks) {
    for (std::size_t i = 0; i < rank->log.calls.size(); ++i) {
      if (!is_of(found, rank->log.calls[i])) continue;
      const CallNames& names = rank->call_names[i];
      if (calls.empty()) out["communicator_name"] = text_or_null(names.group);
      calls.push_back(
          {{"rank", rank->rank}, {"call", names.full}, {"site", text_or_null(names.site)}});
    }
  }
  out["absent"] = found->absent;
  return out;
}

ordered_json flight_of(const JobSnapshot& job) {
  const auto ranks = ranks_of(job);
  std::vector<RankLog> logs;
  for (const auto& [node, rank] : ranks) logs.push_back({rank->rank, &rank->log});
  const auto divergence = first_divergence(logs);

  ordered_json out = head_json(job);
  out["time"] = wall_seconds(job.nodes.front(), job.nodes.front().taken);
  out["missing"] = job.missing();
  out["divergence"] = divergence_json(divergence, ranks);
  auto& told = out["ranks"] = ordered_json::array();
  for (const auto& [node, rank] : ranks) {
    ordered_json one = rank_json(*node, *rank, Groups::all);
    auto& waits = one["waiting"] = ordered_json::array();
    for (std::size_t i = 0; i < rank->log.waits.size(); ++i) {
      const auto& wait = rank->log.waits[i];
      ordered_json call = call_json(*node, wait.call, rank->wait_names[i]);
      call["waits_since"] = wall_seconds(*node, wait.since);
      call["waits_for"] = wait.whom < 0 ? ordered_json(nullptr) : ordered_json(wait.whom);
      waits.push_back(std::move(call));
    }
    auto& calls = one["records"] = ordered_json::array();
    for (std::size_t i = 0; i < rank->log.calls.size(); ++i) {
      const auto& call = rank->log.calls[i];
      calls.push_back(call_json(*node, call, rank->call_names[i]));
      if (is_of(divergence, call)) calls.back()["diverges"] = true;
    }
    one["host"] = node->host;
    told.push_back(std::move(one));
  }
  return out;
}

/// How many calls each rank is behind the foremost rank of a communicator, the largest over its
/// communicators; nullopt for a rank without one.
std::vector<std::optional<std::uint64_t>> lags_of(const std::vector<Seen>& ranks) {
  std::map<std::uint64_t, std::uint64_t> most;
  const auto each_group = [](const Seen& seen, auto act) {
    for (const auto& group : seen.rank->log.groups) {
      if (!group.ended) act(group);
    }
  };
  for (const auto& seen : ranks) {
    each_group(seen, [&](const FlightGroup& group) {
      auto& begun = most[group.communicator];
      begun = std::max(begun, group.begun);
    });
  }
  std::vector<std::optional<std::uint64_t>> lags;
  for (const auto& seen : ranks) {
    auto& lag = lags.emplace_back();
    each_group(seen, [&](const FlightGroup& group) {
      lag = std::max(lag.value_or(0), most[group.communicator] - group.begun);
    });
  }
  return lags;
}

std::string standing_text(const NodeSnapshot& node) {
  return node.standing.empty() ? "" : "said last: " + node.standing + "\n";
}

}  // namespace

std::string flight_json(const JobSnapshot& job) {
  return job.nodes.empty() ? "{}\n" : dumped(flight_of(job), 1);
}

std::string status_json(const JobSnapshot& job) {
  if (job.nodes.empty()) return "{}\n";
  const auto ranks = ranks_of(job);
  const auto lags = lags_of(ranks);
  ordered_json out = head_json(job);
  out["waiting"] = job.is_waiting();
  out["standing"] = text_or_null(job.nodes.front().standing);
  out["stuck"] = text_or_null(stuck_of(job));
  auto& told = out["ranks"] = ordered_json::array();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    told.push_back(rank_json(*ranks[i].node, *ranks[i].rank, Groups::alive));
    told.back()["host"] = ranks[i].node->host;
    told.back()["behind"] = lags[i] ? ordered_json(*lags[i]) : ordered_json(nullptr);
  }
  out["missing"] = job.missing();
  return dumped(out, -1);
}

std::string status_text(const JobSnapshot& job) {
  if (job.nodes.empty()) return "";
  const NodeSnapshot& head = job.nodes.front();
  if (job.is_waiting()) {
    return "job " + head.job + ", waiting for its nodes; here " +
           (job.nodes.size() == 1 ? "is " : "are ") +
           joined(job.nodes,
                  [](const NodeSnapshot& node) {
                    return node.node + " (pid " + std::to_string(node.agent) + ")";
                  }) +
           "\n" + standing_text(head);
  }
  std::string text = "job " + head.job + ", epoch " + std::to_string(head.epoch) + ", attempt " +
                     std::to_string(head.attempt) + ": " + plural(head.world_size, "rank");
  const auto missing = job.missing();
  if (!missing.empty()) {
    text += ", of which " + number_ranges(missing) +
            " cannot be seen: their nodes do not answer, or are not connected";
  }
  text += "\n";
  const std::string& stuck = stuck_of(job);
  if (!stuck.empty()) text += "stuck: " + stuck + "\n";
  const auto ranks = ranks_of(job);
  const auto lags = lags_of(ranks);
  // Several nodes need one more column.
  std::size_t host_width = 0;
  for (const auto& node : job.nodes) {
    if (head.node_count != 1) host_width = std::max({host_width, node.host.size(), std::size_t{4}});
  }
  const auto host_column = [&](std::string host) {
    if (host_width == 0) return std::string();
    host.resize(host_width, ' ');
    return "  " + host;
  };
  char line[96];
  std::snprintf(line, sizeof line, " %8s  %-8s %7s  %s\n", "pid", "state", "behind", "doing");
  text += "  rank" + host_column("host") + line;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const RankSight& rank = *ranks[i].rank;
    std::snprintf(line, sizeof line, "%6d", rank.rank);
    text += line + host_column(ranks[i].node->host);
    std::snprintf(line, sizeof line, " %8d  %-8s %7s  ", rank.pid, state_text(rank.state),
                  lags[i] ? std::to_string(*lags[i]).c_str() : "-");
    text += line + rank.doing + "\n";
  }
  return text + standing_text(head);
}

}  // namespace dlaunch::launcher
