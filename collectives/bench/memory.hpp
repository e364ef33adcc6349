#pragma once

#include "collectives/bench/options.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

/// The memory that the buffers take. A benchmark that asks for too much must not have the kernel
/// choose which process of the machine ends.
namespace dlaunch::bench {

/// Bytes of the largest message of any row.
std::size_t largest_message(const Settings& settings, int ranks);
/// Bytes that one rank allocates.
std::size_t buffer_bytes(const Settings& settings, int ranks);
/// "MemAvailable:" of /proc/meminfo's text, in bytes; nullopt where it has none. Pure.
std::optional<std::size_t> available_in(std::string_view meminfo);

}  // namespace dlaunch::bench
