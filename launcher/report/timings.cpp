#include "launcher/report/timings.hpp"

#include "runtime/base/phrases.hpp"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {

void LaunchTimes::begin_again() {
  agent = nothing_left;
  begun = agent.value_or(begun);
  placed = started = joined = first_ended = nothing_left = std::nullopt;
}

std::vector<Phase> phases_of(const LaunchTimes& times) {
  std::vector<Phase> phases;
  Clock::time_point before = times.begun;
  const auto add = [&](std::string_view name, const std::optional<Clock::time_point>& end) {
    if (!end) return;
    phases.push_back({name, std::max(*end - before, Clock::duration::zero())});
    before = std::max(before, *end);
  };
  if (times.agent && *times.agent != times.begun) add("options", times.agent);
  add("rendezvous", times.placed);
  add("start", times.started);
  // If a rank ended before the first one joined, there is no phase of joining.
  const bool joined = times.joined && !(times.first_ended && *times.first_ended < *times.joined);
  if (joined) add("first_join", times.joined);
  add("run", times.first_ended);
  add("stop", times.nothing_left);
  return phases;
}

std::string timings_text(const std::vector<Phase>& phases) {
  return joined(phases, [](const Phase& phase) {
    std::string name(phase.name);
    std::replace(name.begin(), name.end(), '_', ' ');
    return name + " " + age_text(phase.took);
  });
}

std::string timings_json(const std::vector<Phase>& phases, const std::string& job,
                         const std::string& node, int attempt, WallClock::time_point now) {
  nlohmann::ordered_json out;
  out["time"] = iso_time(now);
  out["level"] = "info";
  out["event"] = "timings";
  out["message"] = timings_text(phases);
  out["job"] = job;
  out["node"] = node;
  out["attempt"] = attempt;
  for (const auto& [name, took] : phases) {
    // Rounded to microseconds: more is noise.
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    out["seconds"][std::string(name)] = static_cast<double>(us) / 1e6;
  }
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch::launcher
