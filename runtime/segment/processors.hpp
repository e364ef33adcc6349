#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// How many processors this process and its children may use. A plain value.
struct Processors {
  int allowed = 1;              ///< In the affinity mask.
  std::optional<double> quota;  ///< The tightest of the cgroups, in processors; may be broken.

  /// How many may be at work at once; a part of one is one, and at least one there is.
  int usable() const noexcept;
  /// Whether so many ranks must share them.
  bool oversubscribed_by(int ranks) const noexcept { return ranks > usable(); }

  bool operator==(const Processors&) const = default;
};

/// Reads this host: the affinity mask, and the cgroups' CPU quotas (v2 and v1) from the own one up.
/// Never throws: what cannot be read does not limit. `root` is put before /proc and /sys, for
/// tests.
Processors read_processors(const std::string& root = {});

/// The numbers of the cores that this process may use; empty where the kernel does not say.
std::vector<int> cores_in_affinity_mask();

/// Pure: "200000", "100000" are two processors; "max", "-1" and nonsense limit nothing.
std::optional<double> quota_of(std::string_view quota_us, std::string_view period_us);

}  // namespace dlaunch
