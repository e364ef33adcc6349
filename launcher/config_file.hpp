#pragma once

#include "launcher/option_values.hpp"

#include <string>
#include <utility>
#include <vector>

namespace dlaunch::launcher {

/// The keys and values of a TOML file, in its order; the elements of an array are joined by commas,
/// as they would be on the command line. Pure: takes the text, not the path.
Read<std::vector<std::pair<std::string, std::string>>> read_config(const std::string& text);

}  // namespace dlaunch::launcher
