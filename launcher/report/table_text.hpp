#pragma once

#include <string>
#include <vector>

namespace dlaunch::launcher {

/// A table as text. All rows have as many cells; columns are padded to one width each, except the
/// last, and stand two spaces apart. The first row is the head.
std::string table_text(const std::vector<std::vector<std::string>>& rows);

}  // namespace dlaunch::launcher
