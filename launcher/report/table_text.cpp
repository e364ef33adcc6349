#include "launcher/report/table_text.hpp"

#include <algorithm>
#include <cstddef>

namespace dlaunch::launcher {

std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i];
      text += i + 1 == row.size() ? "\n" : std::string(widths[i] - row[i].size() + 2, ' ');
    }
  }
  return text;
}

}  // namespace dlaunch::launcher
