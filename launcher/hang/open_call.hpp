#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// The last call in a flight recorder's JSON that has not ended; empty where there is none, nullopt
/// where the text is no such JSON. Pure.
std::optional<std::string> last_open_call(std::string_view json);

}  // namespace dlaunch::launcher
