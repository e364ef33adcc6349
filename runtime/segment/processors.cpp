#include "runtime/segment/processors.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include <sched.h>
#include <sys/stat.h>

namespace dlaunch {
namespace {

constexpr double per_processor = 1000;  // Thousandths.
constexpr int core_numbers_max = 1 << 18;

std::optional<long> positive(std::string_view text) {
  long value = 0;
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read_to != end || value < 1) return std::nullopt;
  return value;
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  if (!std::getline(in, line)) return std::nullopt;
  return line;
}

/// A quota, and the cgroup that has it.
struct Limit {
  double quota = 0;
  std::string directory;
};

void keep_smaller(std::optional<Limit>& kept, std::optional<Limit> found) {
  if (found && (!kept || found->quota < kept->quota)) kept = std::move(found);
}

/// The directories from a cgroup up to its hierarchy's root, both included.
std::vector<std::string> with_parents(const std::string& mount, std::string group) {
  std::vector<std::string> directories;
  while (group.size() > 1) {
    directories.push_back(mount + group);
    group.erase(group.find_last_of('/'));
  }
  directories.push_back(mount);
  return directories;
}

std::optional<Limit> limit_of(const std::string& directory, std::string_view quota_us,
                              std::string_view period_us) {
  const auto quota = quota_of(quota_us, period_us);
  return quota ? std::optional(Limit{*quota, directory}) : std::nullopt;
}

std::optional<Limit> limit_v2(const std::string& directory) {
  const auto max = first_line(directory + "/cpu.max");
  if (!max) return std::nullopt;
  const auto space = max->find(' ');
  if (space == std::string::npos) return std::nullopt;
  return limit_of(directory, std::string_view(*max).substr(0, space),
                  std::string_view(*max).substr(space + 1));
}

std::optional<Limit> limit_v1(const std::string& directory) {
  const auto quota = first_line(directory + "/cpu.cfs_quota_us");
  const auto period = first_line(directory + "/cpu.cfs_period_us");
  return quota && period ? limit_of(directory, *quota, *period) : std::nullopt;
}

/// A cgroup's name for comparison: its directory's numbers, which containers that see it under
/// other names see, too.
std::string name_of(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return "";
  return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino);
}

bool has_word(std::string_view comma_separated, std::string_view word) {
  while (!comma_separated.empty()) {
    const auto comma = std::min(comma_separated.find(','), comma_separated.size());
    if (comma_separated.substr(0, comma) == word) return true;
    comma_separated.remove_prefix(std::min(comma + 1, comma_separated.size()));
  }
  return false;
}

/// A line of /proc/self/cgroup: "hierarchy:controllers:/path".
std::optional<Limit> limit_of_line(const std::string& root, const std::string& line) {
  const auto first = line.find(':');
  const auto second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos || line.find(':', second + 1) != std::string::npos) return {};
  const std::string number = line.substr(0, first);
  const std::string controllers = line.substr(first + 1, second - first - 1);
  const std::string group = line.substr(second + 1);
  if (!group.starts_with('/')) return std::nullopt;
  std::optional<Limit> tightest;
  if (number == "0" && controllers.empty()) {
    for (const auto& directory : with_parents(root + "/sys/fs/cgroup", group)) {
      keep_smaller(tightest, limit_v2(directory));
    }
  } else if (has_word(controllers, "cpu")) {
    for (const auto& directory : with_parents(root + "/sys/fs/cgroup/cpu", group)) {
      keep_smaller(tightest, limit_v1(directory));
    }
  }
  return tightest;
}

std::vector<CoreRange> ranges_of(const std::vector<int>& cores) {
  std::vector<CoreRange> ranges;
  for (const int core : cores) {
    if (!ranges.empty() && ranges.back().first + ranges.back().count == core) {
      ++ranges.back().count;
    } else {
      ranges.push_back({core, 1});
    }
  }
  return ranges;
}

/// Takes off `text` and returns what is before `end`, which goes, too.
std::string_view take_until(std::string_view& text, char end) {
  const auto at = std::min(text.find(end), text.size());
  const auto part = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return part;
}

std::optional<int> number_from(std::string_view text) {
  int value = 0;
  const char* const end = text.data() + text.size();
  const auto [read_to, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || read_to != end || value < 0) return std::nullopt;
  return value;
}

/// Groups masks that have cores in common, directly or through others.
class Neighbourhoods {
 public:
  explicit Neighbourhoods(std::span<const Tenants> tenants) : first_(tenants.size()) {
    std::iota(first_.begin(), first_.end(), std::size_t{0});
    std::vector<Run> runs;
    for (std::size_t i = 0; i < tenants.size(); ++i) {
      for (const CoreRange& range : tenants[i].processors.cores) {
        const auto first = std::int64_t{range.first};
        runs.push_back({first, first + std::max(range.count, 1), i});
      }
    }
    std::ranges::sort(runs, {}, &Run::first);
    std::vector<std::pair<std::size_t, std::int64_t>> widths;
    auto reached = std::numeric_limits<std::int64_t>::min();
    for (const Run& run : runs) {
      if (run.first < reached) {
        unite(widths.back().first, run.of);
      } else {
        widths.emplace_back(run.of, 0);
      }
      const std::int64_t before = std::max(reached, run.first);
      widths.back().second += std::max<std::int64_t>(run.end - before, 0);
      reached = std::max(reached, run.end);
    }
    for (std::size_t i = 0; i < tenants.size(); ++i) ranks_[find(i)] += tenants[i].ranks;
    for (const auto& [of, width] : widths) cores_[find(of)] += width;
  }

  /// Whether this one's neighbourhood has more ranks than cores, as far as its cores are known.
  bool is_crowded(std::size_t i) {
    const auto cores = cores_.find(find(i));
    return cores != cores_.end() && ranks_[find(i)] > cores->second;
  }

 private:
  struct Run {
    std::int64_t first, end;
    std::size_t of;
  };
  std::size_t find(std::size_t i) {
    while (first_[i] != i) i = first_[i] = first_[first_[i]];
    return i;
  }
  void unite(std::size_t a, std::size_t b) { first_[find(b)] = find(a); }

  std::vector<std::size_t> first_;
  std::map<std::size_t, std::int64_t> ranks_, cores_;
};

}  // namespace

int Processors::usable() const noexcept {
  if (!quota || *quota >= allowed) return std::max(1, allowed);
  return std::max(1, static_cast<int>(std::ceil(*quota)));
}

Processors read_processors(const std::string& root) {
  Processors processors;
  const auto cores = cores_in_affinity_mask();
  processors.allowed = std::max(1, static_cast<int>(cores.size()));
  processors.cores = ranges_of(cores);
  std::optional<Limit> tightest;
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) keep_smaller(tightest, limit_of_line(root, line));
  if (tightest) {
    processors.quota = tightest->quota;
    processors.quota_of = name_of(tightest->directory);
  }
  return processors;
}

std::vector<bool> find_crowded(std::span<const Tenants> of_host) {
  std::map<std::vector<std::pair<int, int>>, std::int64_t> with_mask;
  std::map<std::string_view, std::int64_t> with_quota;
  const auto mask_of = [](const Tenants& tenants) {
    std::vector<std::pair<int, int>> mask;
    for (const auto& range : tenants.processors.cores) mask.emplace_back(range.first, range.count);
    return mask;
  };
  for (const Tenants& tenants : of_host) {
    with_mask[mask_of(tenants)] += tenants.ranks;
    with_quota[tenants.processors.quota_of] += tenants.ranks;
  }
  Neighbourhoods neighbourhoods(of_host);
  std::vector<bool> crowded;
  for (std::size_t i = 0; i < of_host.size(); ++i) {
    const auto& [ranks, processors] = of_host[i];
    const bool has_mask = !processors.cores.empty();
    const bool has_quota = processors.quota && !processors.quota_of.empty();
    const std::int64_t on_mask = has_mask ? with_mask[mask_of(of_host[i])] : ranks;
    const std::int64_t in_group = has_quota ? with_quota[processors.quota_of] : ranks;
    crowded.push_back(
        on_mask > processors.allowed || neighbourhoods.is_crowded(i) ||
        (processors.quota && static_cast<double>(in_group) > std::ceil(*processors.quota)));
  }
  return crowded;
}

std::string to_text(const Processors& processors) {
  std::string text;
  for (const auto& [first, count] : processors.cores) {
    text += (text.empty() ? "" : ",") + std::to_string(first);
    if (count > 1) text += "-" + std::to_string(first + count - 1);
  }
  if (!processors.quota) return text;
  return text + "/" + std::to_string(std::llround(*processors.quota * per_processor)) + "@" +
         processors.quota_of;
}

Processors processors_from(std::string_view text) {
  Processors processors;
  std::string_view cores = take_until(text, '/');
  while (!cores.empty()) {
    std::string_view range = take_until(cores, ',');
    const auto first = number_from(take_until(range, '-'));
    const auto last = range.empty() ? first : number_from(range);
    if (!first || !last || *last < *first || *last >= core_numbers_max) continue;
    processors.cores.push_back({*first, *last - *first + 1});
  }
  int allowed = 0;
  for (const auto& range : processors.cores) allowed += range.count;
  processors.allowed = std::max(1, allowed);
  if (const auto quota = number_from(take_until(text, '@')); quota && *quota > 0) {
    processors.quota = *quota / per_processor;
    processors.quota_of = text;
  }
  return processors;
}

std::vector<int> cores_in_affinity_mask() {
  // The kernel refuses a mask smaller than its own; 1024 suffices nearly everywhere.
  for (int most = 1024; most <= core_numbers_max; most *= 4) {
    const std::size_t size = CPU_ALLOC_SIZE(most);
    std::vector<unsigned long> mask(size / sizeof(unsigned long));
    auto* set = reinterpret_cast<cpu_set_t*>(mask.data());
    if (::sched_getaffinity(0, size, set) != 0) continue;
    std::vector<int> cores;
    for (int core = 0; core < most; ++core) {
      if (CPU_ISSET_S(static_cast<std::size_t>(core), size, set)) cores.push_back(core);
    }
    return cores;
  }
  return {};
}

std::optional<double> quota_of(std::string_view quota_us, std::string_view period_us) {
  const auto quota = positive(quota_us), period = positive(period_us);
  if (!quota || !period) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace dlaunch
