#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// The value of a variable in a list of "NAME=value"; the first one counts, as for getenv.
std::optional<std::string_view> lookup(std::span<const std::string> environment,
                                       std::string_view name);

}  // namespace dlaunch::launcher
