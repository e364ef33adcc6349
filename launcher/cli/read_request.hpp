#pragma once

#include "launcher/request/resolve.hpp"

#include <span>
#include <string>
#include <variant>

namespace dlaunch::launcher {

/// Reads what the user asked for. A pure function of the arguments (without argv[0]), the
/// environment ("NAME=value" each) and the files. The first argument may be "run", or "bench":
/// words that are no options of the launcher then go to the benchmark, which has all usable cores
/// unless something else is asked for. A ':' divides the line into parts, each with a program and
/// options of its own.
std::variant<Request, EarlyExit> read_request(std::span<const std::string> arguments,
                                              std::span<const std::string> environment,
                                              const FileReader& read_file = {});

/// The same, resolved.
std::variant<JobSpec, EarlyExit> read_job(std::span<const std::string> arguments,
                                          std::span<const std::string> environment,
                                          const FileReader& read_file = {},
                                          const LaunchContext& context = {});

}  // namespace dlaunch::launcher
