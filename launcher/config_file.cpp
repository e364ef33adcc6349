#include "launcher/config_file.hpp"

#include <sstream>

#include <CLI/CLI.hpp>

namespace dlaunch::launcher {

Read<std::vector<std::pair<std::string, std::string>>> read_config(const std::string& text) {
  std::vector<std::pair<std::string, std::string>> values;
  try {
    std::istringstream in(text);
    for (const auto& item : CLI::ConfigTOML().from_config(in)) {
      // CLI11 marks a section's begin and end with items of these names.
      if (!item.parents.empty()) {
        return Complaint{"section [" + item.parents.front() + "]: there are no sections"};
      }
      if (item.name == "++" || item.name == "--") continue;
      std::string joined;
      for (const auto& input : item.inputs) joined += (joined.empty() ? "" : ",") + input;
      values.emplace_back(item.name, joined);
    }
  } catch (const std::exception& error) {
    return Complaint{error.what()};
  }
  return values;
}

}  // namespace dlaunch::launcher
