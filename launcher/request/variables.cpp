#include "launcher/request/variables.hpp"

namespace dlaunch::launcher {

std::optional<std::string_view> lookup(std::span<const std::string> environment,
                                       std::string_view name) {
  for (const std::string_view line : environment) {
    if (line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name)) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace dlaunch::launcher
