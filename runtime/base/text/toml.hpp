#pragma once

#include "runtime/base/text/values.hpp"

#include <string>
#include <vector>

namespace dlaunch {

/// One key of a TOML file.
struct TomlItem {
  std::string key;
  std::string value;  ///< The elements of an array joined by commas, as on a command line.
  int line = 0;       ///< The line of the value; 0: not known.
};

/// The keys and values of a TOML file without sections, in its order. Pure: takes the text, not
/// the path.
Read<std::vector<TomlItem>> read_toml(const std::string& text);

}  // namespace dlaunch
