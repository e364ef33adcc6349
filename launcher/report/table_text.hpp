#pragma once

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// Rows of as many columns each, in columns of one width, two spaces apart; the last one is not
/// filled up. The first row is the head.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace dlaunch::launcher
