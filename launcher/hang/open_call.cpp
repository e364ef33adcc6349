#include "launcher/hang/open_call.hpp"

#include <nlohmann/json.hpp>

namespace dlaunch::launcher {
namespace {

std::string text_at(const nlohmann::json& entry, const char* name) {
  const auto found = entry.find(name);
  return found != entry.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<std::string> last_open_call(std::string_view json) {
  const auto all = nlohmann::json::parse(json, nullptr, false);
  if (!all.is_object() || !all.contains("entries") || !all["entries"].is_array()) {
    return std::nullopt;
  }
  const auto& entries = all["entries"];
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!entry->is_object()) return std::nullopt;
    const auto retired = entry->find("retired");
    const bool done = retired != entry->end() && retired->is_boolean() && retired->get<bool>();
    const std::string state = text_at(*entry, "state");
    if (done || state == "completed") continue;
    std::string name = text_at(*entry, "profiling_name");
    if (const auto colon = name.find(':'); colon != name.npos) name.erase(0, colon + 1);
    const auto number = entry->find("collective_seq_id");
    if (number != entry->end() && number->is_number_integer()) {
      name += " #" + std::to_string(number->get<long>());
    }
    const auto group = entry->find("process_group");
    if (group != entry->end() && group->is_array() && group->size() > 1 &&
        group->back().is_string()) {
      name += " of " + group->back().get<std::string>();
    }
    return name + (state.empty() ? "" : ", " + state);
  }
  return "";
}

}  // namespace dlaunch::launcher
