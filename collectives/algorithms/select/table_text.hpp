#pragma once

#include "collectives/algorithms/select/select.hpp"

#include <span>
#include <string>
#include <string_view>
#include <variant>

/// A table as text, which `dlaunch bench --calibrate` writes and DLAUNCH_TABLE names. The first
/// line is "dlaunch-table 1"; then comments, which begin with #, empty lines, and lines
///
///     NAME = NUMBER | unlimited
///
/// each of which sets the limit of the named line, in its measure. Other lines keep their built-in
/// limits. Pure.
namespace dlaunch::algorithms {

constexpr std::string_view table_title = "dlaunch-table 1";

/// The table of a text, or a complaint: "line 3: ...".
std::variant<Table, std::string> parse_table(std::string_view text);

/// A limit, and a comment about it.
struct TableEntry {
  std::string name;
  std::size_t most = unlimited;
  std::string comment;  ///< A line of its own above it; may be empty.
};
/// "shared.reduce.one_shot = 4096".
std::string entry_text(const TableEntry& entry);
/// What parse_table reads; `comments` stand at its head.
std::string table_text(std::span<const std::string> comments, std::span<const TableEntry> entries);

}  // namespace dlaunch::algorithms
