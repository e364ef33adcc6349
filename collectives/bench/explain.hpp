#pragma once

#include "collectives/bench/options.hpp"

#include <string>

namespace dlaunch::bench {

/// --explain: a line for each operation and size that says which algorithm serves it, and why.
/// `shared`: all ranks share memory. Pure.
std::string explain_text(const Settings& settings, int ranks, bool shared);

}  // namespace dlaunch::bench
