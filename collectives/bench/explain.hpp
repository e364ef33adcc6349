#pragma once

#include "collectives/algorithms/select/select.hpp"
#include "collectives/bench/options.hpp"

#include <string>

namespace dlaunch::bench {

/// --explain: the table in use, and a line for each operation and size that says which algorithm
/// serves it, and why. `topology` describes the ranks; the fields that depend on a call are filled
/// in. Pure.
std::string explain_text(const Settings& settings, algorithms::Topology topology,
                         const algorithms::Table& table);

}  // namespace dlaunch::bench
