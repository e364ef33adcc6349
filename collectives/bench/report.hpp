#pragma once

#include "collectives/bench/measure.hpp"
#include "collectives/bench/options.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dlaunch::bench {

/// The place of a measurement. A plain value.
struct Site {
  int ranks = 1;
  int nodes = 1;
  std::string transport;
  std::vector<std::string> hosts;  ///< One of each name, in the order of their first ranks.
  std::vector<std::optional<int>> nodes_of_ranks;  ///< Set for ranks that share memory with others.
  bool shares_memory = false;                      ///< All ranks have a segment in common.
  int cores = 0;                ///< Usable, on the node that has fewest for each of its ranks.
  int ranks_there = 1;          ///< Ranks on that node.
  bool buffers_shared = false;  ///< All ranks map those of all.
  bool crowded = false;         ///< A host's ranks of several nodes are more than its processors.

  bool oversubscribed() const { return crowded || ranks_there > cores; }
};

/// The first of the lines above the table: where this is.
std::string site_text(const Site& site);
/// The lines above the table; each begins with '#'.
std::string head_text(const Site& site, const Settings& settings);
std::string row_text(const Row& row, const Site& site, const Settings& settings);
/// The whole, as --json writes it: docs/bench.md describes it. Ends in a newline.
std::string json_text(const Site& site, const Settings& settings, std::span<const Row> rows);

}  // namespace dlaunch::bench
