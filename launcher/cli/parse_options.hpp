#pragma once

#include "launcher/request/options.hpp"

#include <span>
#include <string>
#include <variant>

namespace dlaunch::launcher {

/// Decides what the user asked for. A pure function of the arguments (without argv[0]), the
/// environment ("NAME=value" each) and the files. The first argument may be "run", or "bench": then
/// what is no option of the launcher is for the benchmark, which has all usable cores and lines
/// without prefix unless something else is asked for.
std::variant<Options, EarlyExit> parse_options(std::span<const std::string> arguments,
                                               std::span<const std::string> environment,
                                               const FileReader& read_file = {});

/// What --help prints.
std::string help_text();

}  // namespace dlaunch::launcher
