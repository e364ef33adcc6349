#include "launcher/report/job_list.hpp"

#include "launcher/report/table_text.hpp"
#include "runtime/base/phrases.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::ordered_json;

std::string ranks_of(const JobEntry& entry) {
  const std::string here = std::to_string(entry.ranks_here);
  if (entry.world_size == 0) return here;
  return here + " of " + std::to_string(entry.world_size);
}

std::string age_of(const JobEntry& entry, WallClock::time_point now) {
  return age_text(std::chrono::duration_cast<Clock::duration>(
      std::max(now - entry.began, WallClock::duration::zero())));
}

}  // namespace

const char* state_text(JobState state) {
  switch (state) {
    case JobState::waiting:
      return "waiting";
    case JobState::running:
      return "running";
    case JobState::restarting:
      return "restarting";
    case JobState::stopping:
      return "stopping";
    case JobState::ended:
      return "ended";
  }
  return "?";
}

std::string drained_text(const JobDrained& drained) {
  using Then = JobDrained::Then;
  const std::string left = plural(drained.nodes_left, "node");
  switch (drained.then) {
    case Then::goes_on:
      return "goes on without it, with " + left;
    case Then::too_few:
      return "needs " + plural(drained.nodes_least, "node") + ", has " + left +
             " without it, and waits for another one";
    case Then::not_elastic:
      return "ends on all nodes: it is not elastic (--nnodes LEAST:MOST)";
    case Then::hosted_here:
      return "ends on all nodes: this one hosts it, and no dlaunchd does";
    case Then::only_node:
      return "ends: it has no other node";
  }
  return "?";
}

std::string list_text(const std::vector<FoundJob>& jobs, WallClock::time_point now) {
  std::vector<std::vector<std::string>> rows = {{"job", "state", "ranks", "age", "pid", "program"}};
  for (const auto& [entry, agent, front] : jobs) {
    rows.push_back({entry.job, state_text(entry.state), ranks_of(entry), age_of(entry, now),
                    front > 0 ? std::to_string(front) : "-", clipped(entry.program)});
  }
  return table_text(rows);
}

std::string list_json(const std::vector<FoundJob>& jobs, WallClock::time_point now) {
  std::string text;
  for (const auto& [entry, agent, front] : jobs) {
    const auto number = [](std::int64_t value) {
      return value > 0 ? ordered_json(value) : ordered_json(nullptr);
    };
    ordered_json out;
    out["job"] = entry.job;
    out["state"] = state_text(entry.state);
    out["node"] = entry.node;
    out["host"] = entry.host;
    out["ranks_here"] = entry.ranks_here;
    out["world_size"] = number(entry.world_size);
    out["attempt"] = entry.attempt;
    out["began"] = iso_time(entry.began);
    out["age"] = std::chrono::duration<double>(now - entry.began).count();
    out["pid"] = number(front);
    out["agent"] = number(agent);
    out["program"] = entry.program;
    text += out.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace dlaunch::launcher
