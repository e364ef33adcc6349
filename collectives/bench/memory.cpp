#include "collectives/bench/memory.hpp"

#include "collectives/bench/calls.hpp"

#include <algorithm>
#include <charconv>

namespace dlaunch::bench {

std::size_t largest_message(const Settings& settings, int ranks) {
  std::size_t most = size_of(settings.dtype) * static_cast<std::size_t>(ranks);
  for (const std::size_t size : settings.sizes) most = std::max(most, size);
  return most;
}

std::size_t buffer_bytes(const Settings& settings, int ranks) {
  return 2 * Arena::bytes_for(largest_message(settings, ranks), settings.buffers);
}

std::optional<std::size_t> available_in(std::string_view meminfo) {
  constexpr std::string_view name = "MemAvailable:";
  const auto at = meminfo.find(name);
  if (at == meminfo.npos) return std::nullopt;
  auto number = meminfo.substr(at + name.size());
  number.remove_prefix(std::min(number.find_first_not_of(' '), number.size()));
  std::size_t kibibytes = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), kibibytes);
  if (read.ec != std::errc{}) return std::nullopt;
  return kibibytes * 1024;
}

}  // namespace dlaunch::bench
