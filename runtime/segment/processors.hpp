#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// A run of cores, by their numbers.
struct CoreRange {
  int first = 0;
  int count = 1;
  bool operator==(const CoreRange&) const = default;
};

/// The processors that this process and its children may use. A plain value.
struct Processors {
  int allowed = 1;              ///< In the affinity mask.
  std::optional<double> quota;  ///< The tightest of the cgroups, in processors; may be broken.
  std::vector<CoreRange> cores = {};  ///< The mask, in order; empty where the kernel does not say.
  /// Names the cgroup with that quota, the same for all processes of this host; empty without one.
  std::string quota_of = {};

  /// How many ranks may be at work at once: a fraction counts as one, and the least is one.
  int usable() const noexcept;
  /// Whether so many ranks must share the processors.
  bool oversubscribed_by(int ranks) const noexcept { return ranks > usable(); }

  bool operator==(const Processors&) const = default;
};

/// Reads this host: the affinity mask, and the cgroups' CPU quotas (v2 and v1) from the own one up.
/// Never throws: what cannot be read does not limit. `root` is put before /proc and /sys, for
/// tests.
Processors read_processors(const std::string& root = {});

/// The numbers of the cores that this process may use; empty where the kernel does not say.
std::vector<int> cores_in_affinity_mask();

/// Ranks of one host that were started together, and what each of them may use.
struct Tenants {
  int ranks = 1;
  Processors processors;
};
/// Finds the ranks that must share processors: their masks, joined with those that have cores in
/// common, hold fewer cores than there are ranks, or a cgroup grants fewer to all ranks in it.
/// Pure.
std::vector<bool> find_crowded(std::span<const Tenants> of_host);

/// The mask and the quota as one word, "0-3,8/1500@25:77", with the quota in thousandths of a
/// processor, and back; any other word reads as one unknown processor. Pure.
std::string to_text(const Processors& processors);
Processors processors_from(std::string_view text);

/// The processors of a quota and its period: "200000", "100000" are two; "max", "-1" and nonsense
/// limit nothing. Pure.
std::optional<double> quota_of(std::string_view quota_us, std::string_view period_us);

}  // namespace dlaunch
