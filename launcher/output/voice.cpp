#include "launcher/output/voice.hpp"

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

using nlohmann::ordered_json;

std::string_view name_of(Level level) {
  switch (level) {
    case Level::info:
      return "info";
    case Level::warning:
      return "warning";
    case Level::error:
      break;
  }
  return "error";
}

}  // namespace

std::optional<std::string> Voice::line(const Remark& remark, WallClock::time_point now) const {
  if (quiet && remark.level != Level::error) return std::nullopt;
  if (!json) return "dlaunch: " + remark.sentence;
  ordered_json out;
  out["time"] = iso_time(now);
  out["level"] = name_of(remark.level);
  if (!remark.event.empty()) out["event"] = remark.event;
  out["message"] = remark.sentence;
  if (!job.empty()) out["job"] = job;
  if (!node.empty()) out["node"] = node;
  if (remark.rank) out["rank"] = *remark.rank;
  for (const auto& [name, text] : remark.details) out[name] = text;
  // Output of workers need not be UTF-8.
  return out.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace dlaunch::launcher
