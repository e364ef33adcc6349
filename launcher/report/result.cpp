#include "launcher/report/result.hpp"

#include "launcher/report/json_text.hpp"
#include "runtime/base/phrases.hpp"

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {

namespace {

using nlohmann::ordered_json;

constexpr int result_version = 1;

double seconds_between(WallClock::time_point from, WallClock::time_point to) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(to - from);
  return static_cast<double>(ms.count()) / 1000;
}

std::string_view origin_name(Origin origin) {
  switch (origin) {
    case Origin::command_line:
      return "command line";
    case Origin::dlaunch_variable:
    case Origin::pet_variable:
      return "variable";
    case Origin::scheduler:
      return "scheduler";
    case Origin::config_file:
      return "file";
    case Origin::standard:
      break;
  }
  return "default";
}

ordered_json end_to_json(const WorkerEnd& end) {
  ordered_json out;
  out["pid"] = end.pid;
  out["host"] = end.host;
  out["ended"] = iso_time(end.time);
  out["exit_code"] = end.status.signal == 0 ? ordered_json(end.status.code) : ordered_json(nullptr);
  out["signal"] = text_or_null(end.status.signal == 0 ? "" : signal_name(end.status.signal));
  out["core_dumped"] = end.status.core_dumped;
  out["core_file"] = text_or_null(end.core_file);
  out["stopped_by_dlaunch"] = end.stopped_by_us;
  out["peer_lost"] = end.peer_lost;
  out["complaint"] = text_or_null(end.complaint);
  out["error_file"] = text_or_null(end.error_file);
  if (end.error) {
    out["error"] = {{"message", end.error->message},
                    {"callstack", text_or_null(end.error->callstack)}};
  } else {
    out["error"] = nullptr;
  }
  out["last_stderr_lines"] = end.last_lines;
  return out;
}

ordered_json attempt_to_json(const AttemptResult& attempt) {
  const auto& assignment = attempt.plan.assignment;
  ordered_json out;
  out["attempt"] = assignment.attempt;
  out["epoch"] = assignment.epoch;
  out["started"] = iso_time(attempt.started);
  out["ended"] = iso_time(attempt.ended);
  out["seconds"] = seconds_between(attempt.started, attempt.ended);
  out["world_size"] = assignment.world_size;
  out["master_addr"] = assignment.master_addr;
  out["master_port"] = assignment.master_port;
  const auto& programs = attempt.plan.programs;
  out["command"] = programs.empty() ? std::vector<std::string>() : programs.front().argv;
  out["flight_file"] = text_or_null(attempt.flight_file);
  out["stacks_file"] = text_or_null(attempt.stacks_file);
  out["stacks"] = text_or_null(attempt.stacks_headline);
  out["memory_kills"] =
      attempt.memory_kills ? ordered_json(attempt.memory_kills->count) : ordered_json(nullptr);
  out["reader_gone"] = text_or_null(attempt.reader_gone);
  out["root_cause"] = attempt.verdict ? ordered_json(attempt.verdict->rank()) : nullptr;
  out["workers"] = ordered_json::array();
  for (const auto& worker : attempt.plan.workers) {
    ordered_json entry;
    entry["rank"] = worker.rank;
    entry["local_rank"] = worker.local_rank;
    if (programs.size() > 1) entry["command"] = programs[worker.program].argv;
    entry["stdout_log"] = text_or_null(worker.stdio.out.file.value_or(""));
    entry["stderr_log"] = text_or_null(worker.stdio.err.file.value_or(""));
    entry["end"] = nullptr;
    entry["order"] = nullptr;
    for (std::size_t order = 0; order < attempt.ends.size(); ++order) {
      if (attempt.ends[order].rank != worker.rank) continue;
      entry["order"] = order;
      entry["end"] = end_to_json(attempt.ends[order]);
    }
    out["workers"].push_back(std::move(entry));
  }
  return out;
}

}  // namespace

std::string to_json(const JobResult& result, const JobSpec& spec) {
  ordered_json out;
  out["format"] = result_version;
  out["job"] = result.job;
  out["host"] = result.host;
  out["program"] = spec.program;
  out["outcome"] = result.outcome;
  out["exit_code"] = result.exit_code;
  out["reason"] = text_or_null(result.reason);
  out["started"] = iso_time(result.started);
  out["ended"] = iso_time(result.ended);
  out["seconds"] = seconds_between(result.started, result.ended);
  out["timings"] = ordered_json::object();
  for (const auto& [name, took] : result.timings) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    out["timings"][std::string(name)] = static_cast<double>(us) / 1e6;
  }
  out["options"] = ordered_json::object();
  for (const auto& setting : spec.settings) {
    out["options"][setting.flag] = {{"value", text_or_null(setting.value)},
                                    {"origin", origin_name(setting.origin)},
                                    {"where", text_or_null(setting.where)}};
  }
  out["attempts"] = ordered_json::array();
  for (const auto& attempt : result.attempts) out["attempts"].push_back(attempt_to_json(attempt));
  // A program's output need not be UTF-8.
  return out.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dlaunch::launcher
