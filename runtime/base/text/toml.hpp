#pragma once

#include "runtime/base/text/values.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// One key of a TOML file.
struct TomlItem {
  std::string key;
  std::string value;  ///< The elements of an array joined by commas, as on a command line.
  std::string where;  ///< "job.toml:3".
};

/// The keys and values of a TOML file without sections, in its order. Words need no quotes. Pure:
/// `path` is for messages, which name it and the line.
Read<std::vector<TomlItem>> read_toml(std::string_view path, std::string_view text);

}  // namespace dlaunch
