#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

/// Environments as schedulers make them: what tests/process/schedulers/record_environments wrote
/// down.
namespace dlaunch::launcher {

using Environment = std::vector<std::string>;

/// The environment of one process of a recording.
inline Environment recorded(const std::string& name, int process) {
  std::ifstream in(std::string(DLAUNCH_SOURCE_DIR) + "/tests/unit/launcher/environments/" + name +
                   ".txt");
  const std::string heading = "# process " + std::to_string(process);
  Environment lines;
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("# ")) {
      inside = line == heading;
    } else if (inside) {
      lines.push_back(line);
    }
  }
  REQUIRE_MESSAGE(!lines.empty(), name << " has no " << heading);
  return lines;
}

/// The same with one variable set to something else.
inline Environment with(Environment environment, const std::string& name,
                        const std::string& value) {
  std::erase_if(environment, [&](const auto& line) { return line.starts_with(name + "="); });
  environment.push_back(name + "=" + value);
  return environment;
}

}  // namespace dlaunch::launcher
