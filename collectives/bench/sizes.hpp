#pragma once

#include "runtime/base/text/values.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

/// Sizes in bytes as people write them. Pure.
namespace dlaunch::bench {

constexpr std::size_t size_bytes_max = std::size_t{16} << 30;
constexpr std::size_t sizes_max = 256;  ///< Rows of one operation.

/// "4", "64K", "1M", "2G": in units of 1024. More than 0, at most size_bytes_max.
Read<std::size_t> read_size(std::string_view text);
/// "4,4K,1M", "4:64M" (each four times the one before), "4:64M:x2", "1M:4M:+1M".
Read<std::vector<std::size_t>> read_sizes(std::string_view text);
/// "64 MiB" for a multiple, else the number of bytes; for the table.
std::string size_text(std::size_t bytes);

}  // namespace dlaunch::bench
