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
  int cores = 0;                ///< Usable cores of the node with the fewest per rank.
  int ranks_there = 1;          ///< Ranks on that node.
  bool buffers_shared = false;  ///< All ranks can map each other's buffers.
  /// On some host the ranks of several nodes outnumber its processors.
  bool crowded = false;

  bool oversubscribed() const { return crowded || ranks_there > cores; }
};

/// The first line above the table, which names the place.
std::string site_text(const Site& site);
/// The lines above the table; each begins with '#'.
std::string head_text(const Site& site, const Settings& settings);
std::string row_text(const Row& row, const Site& site, const Settings& settings);
/// The whole, as --json writes it: docs/bench.md describes it. Ends in a newline.
std::string json_text(const Site& site, const Settings& settings, std::span<const Row> rows);

}  // namespace dlaunch::bench
