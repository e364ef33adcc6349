#pragma once

#include <dlaunch/store.hpp>

#include <cstddef>
#include <optional>
#include <string>

/// The file that DLAUNCH_TABLE names, from which all ranks take the limits by which they choose
/// algorithms: rank 0 reads it and leaves its text in the store. Its content is not looked at here.
namespace dlaunch {

constexpr const char* table_variable = "DLAUNCH_TABLE";
constexpr std::size_t table_bytes_max = std::size_t{64} << 10;

/// As rank 0 read it.
struct TableFile {
  std::string origin;  ///< "'FILE' of rank 0".
  std::string text;
  bool operator==(const TableFile&) const = default;
};

/// For rank 0, before any other looks: reads `path`, and leaves what is there, or why it cannot be
/// read, in the store. Throws what the store throws.
void publish_table(Store& store, const std::string& path);
/// The file that rank 0 left; nullopt if there is none. Throws Error{misuse} if it could not read
/// it.
std::optional<TableFile> find_table(Store& store);
/// For another rank that has the variable, too: Error{mismatch}, naming both, if it has a file of
/// that name in which there is something else, or if rank 0 goes by none. A file that is not here
/// need not be.
void compare_table(Store& store, int rank, const std::string& path);

}  // namespace dlaunch
