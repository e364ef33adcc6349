#include "launcher/report/error_file.hpp"

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

}  // namespace

std::optional<ErrorReport> parse_error_file(std::string_view text) {
  const auto root = json::parse(text, nullptr, false);
  if (!root.is_object()) return std::nullopt;
  const auto message = root.find("message");
  if (message == root.end()) return std::nullopt;
  ErrorReport report;
  if (message->is_string()) {
    report.message = message->get<std::string>();
    return report;
  }
  if (!message->is_object()) return std::nullopt;
  report.message = text_of(*message, "message");
  const auto extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    report.callstack = text_of(*extra, "py_callstack");
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
