#pragma once

#include "collectives/algorithms/select/select.hpp"
#include "collectives/algorithms/select/table_text.hpp"
#include "collectives/bench/options.hpp"

#include <dlaunch/communicator.hpp>

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

/// --calibrate: finds the best limits of the table's lines for these ranks.
namespace dlaunch::bench {

/// Calls of one size, in microseconds: by the line's algorithm, and by what serves without it.
struct Duel {
  std::size_t bytes = 0;  ///< As the table counts them.
  double with_us = 0, without_us = 0;
};

/// How many of the duels, in the order of their sizes, the line should win: beyond these it loses
/// more than it gains. `now` is the number it wins with the present table, which is kept unless it
/// costs several percent. Pure.
std::size_t best_cut(std::span<const Duel> duels, std::size_t now);

/// The sizes at which a line is to be measured: the ones that it decides, from 64 bytes on, each
/// twice the one before. Empty if other lines decide, or if the line is for other ranks. Pure.
std::vector<std::size_t> sizes_to_measure(const algorithms::Table& table,
                                          const algorithms::Row& row,
                                          const algorithms::Topology& topology);

/// Every limit that can be measured by these ranks, in the order of the table. All ranks call it
/// and get the same; `told` gets each as it is there. The communicator goes by its old table
/// afterwards. Throws what the calls throw, and Error{internal} if a result was wrong.
std::vector<algorithms::TableEntry> calibrate(
    Communicator& communicator, const Settings& settings, const algorithms::Topology& topology,
    const std::function<void(const algorithms::TableEntry&)>& told);

}  // namespace dlaunch::bench
