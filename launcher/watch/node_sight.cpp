#include "launcher/watch/node_sight.hpp"

#include "runtime/base/text/wall_clock.hpp"

#include <cstdio>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::ordered_json;

constexpr int format_version = 1;

/// Text of a program, in whatever encoding, becomes JSON.
std::string dumped(const ordered_json& json) {
  return json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// A hash: as a number it is beyond what JSON's readers keep exactly.
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

double seconds(Clock::duration duration) {
  return static_cast<double>(
             std::chrono::duration_cast<std::chrono::microseconds>(duration).count()) /
         1e6;
}

/// Seconds since 1970, for times of the monotonic clock.
class WallTimes {
 public:
  explicit WallTimes(Clock::time_point now) : now_(now), wall_(WallClock::now()) {}
  double at(Clock::time_point time) const {
    const auto since = wall_.time_since_epoch() - (now_ - time);
    return static_cast<double>(
               std::chrono::duration_cast<std::chrono::microseconds>(since).count()) /
           1e6;
  }

 private:
  Clock::time_point now_;
  WallClock::time_point wall_;
};

ordered_json head(const NodeSight& node) {
  ordered_json out;
  out["version"] = format_version;
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

enum class Groups { alive, all };

ordered_json rank_head(const RankSight& rank, Clock::time_point now, Groups shown) {
  ordered_json out;
  out["rank"] = rank.rank;
  out["pid"] = rank.pid;
  out["state"] = state_text(rank.state);
  out["end"] = rank.end.empty() ? ordered_json(nullptr) : ordered_json(rank.end);
  out["ended_seconds_ago"] =
      rank.ended ? ordered_json(seconds(now - *rank.ended)) : ordered_json(nullptr);
  out["member"] = rank.member;
  out["doing"] = doing_text(rank, now);
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

ordered_json call_json(const FlightNames& names, const FlightCall& call, const WallTimes& times) {
  const auto text = [](const std::string& t) {
    return t.empty() ? ordered_json(nullptr) : ordered_json(t);
  };
  static constexpr const char* kinds[] = {"call", "start", "wait", "aside"};
  const bool is_message = call.sequence == 0;
  constexpr std::uint64_t any_tag = ~std::uint64_t{0};
  ordered_json out;
  out["number"] = call.number;
  out["communicator"] = call.communicator;
  out["communicator_name"] = text(names.group(call));
  out["op"] = names.op(call);
  std::string owner = names.owner(call);
  if (owner.ends_with(' ')) owner.pop_back();
  out["owner"] = text(owner);
  out["purpose"] = text(names.purpose(call));
  out["kind"] = kinds[static_cast<std::size_t>(call.kind) % std::size(kinds)];
  out["sequence"] = is_message ? ordered_json(nullptr) : ordered_json(call.sequence);
  out["dtype"] = text(names.dtype(call));
  const bool varies = call.count == ~std::uint64_t{0};
  out["count"] = varies ? ordered_json(nullptr) : ordered_json(call.count);
  out["reduction"] = text(names.reduction(call));
  const ordered_json place = call.place < 0 ? ordered_json(nullptr) : ordered_json(call.place);
  out[is_message ? "peer" : "root"] = place;
  if (is_message) {
    out["tag"] = call.argument == any_tag ? ordered_json(nullptr) : ordered_json(call.argument);
  } else {
    out["argument"] = hexadecimal(call.argument);
  }
  out["site"] = text(names.site(call));
  out["began"] = times.at(call.began);
  out["ended"] = call.ended ? ordered_json(times.at(*call.ended)) : ordered_json(nullptr);
  out["state"] = !call.ended ? "under way" : call.failed ? "failed" : "done";
  return out;
}

}  // namespace

std::string status_json(const NodeSight& node, Clock::time_point now) {
  ordered_json out = head(node);
  out["stuck"] = node.stuck.empty() ? ordered_json(nullptr) : ordered_json(node.stuck);
  auto& ranks = out["ranks"] = ordered_json::array();
  for (const auto& rank : node.ranks) ranks.push_back(rank_head(rank, now, Groups::alive));
  return dumped(out);
}

std::string flight_json(const NodeSight& node, Clock::time_point now) {
  const WallTimes times(now);
  ordered_json out = head(node);
  out["time"] = times.at(now);
  auto& ranks = out["ranks"] = ordered_json::array();
  for (const auto& rank : node.ranks) {
    ordered_json told = rank_head(rank, now, Groups::all);
    auto& waits = told["waiting"] = ordered_json::array();
    auto& calls = told["records"] = ordered_json::array();
    if (rank.ring != nullptr) {
      const FlightNames names{*rank.ring};
      for (const auto& wait : rank.log.waits) {
        ordered_json call = call_json(names, wait.call, times);
        call["waits_since"] = times.at(wait.since);
        call["waits_for"] = wait.whom < 0 ? ordered_json(nullptr) : ordered_json(wait.whom);
        waits.push_back(std::move(call));
      }
      for (const auto& call : rank.log.calls) calls.push_back(call_json(names, call, times));
    }
    ranks.push_back(std::move(told));
  }
  return dumped(out);
}

}  // namespace dlaunch::launcher
