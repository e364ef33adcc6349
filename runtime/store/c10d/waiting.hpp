#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch::c10d {

/// The wait of a client of PyTorch's store, for people who look into a job that hangs. A value.
struct Waiting {
  /// A barrier of the store's own, not one that PyTorch makes of keys.
  struct Barrier {
    std::int64_t arrived = 0;
    std::int64_t world = 0;
    bool operator==(const Barrier&) const = default;
  };
  std::uint64_t client = 0;
  std::vector<std::string> keys = {};  ///< The first of those that nobody has set; a barrier's own.
  std::size_t more = 0;                ///< How many keys were not looked at.
  Clock::time_point since{};           ///< When it first asked for these keys.
  std::optional<Barrier> barrier = {};  ///< Set if it is a barrier's wait.
  bool operator==(const Waiting&) const = default;
};

/// The most keys of one wait that are listed.
constexpr std::size_t told_keys_max = 16;

}  // namespace dlaunch::c10d
