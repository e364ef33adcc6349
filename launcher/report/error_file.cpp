#include "launcher/report/error_file.hpp"

#include <charconv>

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {

namespace {

using nlohmann::json;

/// A member as text: strings as they are, other values as JSON; empty where it is missing.
std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  if (found->is_string()) return found->get<std::string>();
  return found->dump(-1, ' ', false, json::error_handler_t::replace);
}

/// Seconds since 1970, written as a number or as a string.
std::optional<WallClock::time_point> time_of(const json& object) {
  // The clock counts nanoseconds in 64 bits, which end in 2262.
  constexpr std::int64_t year_2200 = 7'258'118'400;
  const std::string text = text_of(object, "timestamp");
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  // A fraction may follow; it says no more than the launcher's own clock.
  if (error != std::errc{} || (end != text.data() + text.size() && *end != '.')) return {};
  if (seconds <= 0 || seconds >= year_2200) return {};
  return WallClock::time_point(std::chrono::seconds(seconds));
}

}  // namespace

std::optional<ErrorReport> parse_error_file(std::string_view text) {
  const auto root = json::parse(text, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  const auto message = root.find("message");
  if (message == root.end()) return std::nullopt;
  ErrorReport report;
  if (message->is_string()) {
    report.message = message->get<std::string>();
    report.time = time_of(root);
    return report;
  }
  if (!message->is_object()) return std::nullopt;
  report.message = text_of(*message, "message");
  const auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    report.callstack = text_of(*extra, "py_callstack");
    report.time = time_of(*extra);
  }
  return report;
}

std::string with_error_code(std::string text, int code) {
  auto root = nlohmann::ordered_json::parse(text, nullptr, false);
  if (code == 0 || !root.is_object()) return text;
  const auto message = root.find("message");
  if (message == root.end() || !message->is_object()) return text;
  (*message)["errorCode"] = code;
  return root.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace dlaunch::launcher
