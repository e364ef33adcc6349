#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <optional>
#include <string>

/// The file that DLAUNCH_TABLE names, from which all ranks take the limits by which they choose
/// algorithms: rank 0 reads it and leaves its text in the store. Its content is not interpreted
/// here.
namespace dlaunch {

constexpr const char* table_variable = "DLAUNCH_TABLE";
constexpr std::size_t table_bytes_max = std::size_t{64} << 10;

/// The text as rank 0 read it.
struct TableFile {
  std::string origin;  ///< "'FILE' of rank 0".
  std::string text;
  bool operator==(const TableFile&) const = default;
};

/// For rank 0, before the others look: reads `path`, and leaves the text, or why it cannot be read,
/// in the store. Throws what the store throws.
void publish_table(Store& store, const std::string& path);
/// The file that rank 0 left; nullopt if there is none. Throws Error{misuse} if it could not read
/// it.
std::optional<TableFile> find_table(Store& store);
/// For another rank that has the variable, too: Error{mismatch}, naming both, if its own file
/// differs, or if rank 0 uses none. The file need not exist here.
void compare_table(Store& store, int rank, const std::string& path);

}  // namespace dlaunch
