#pragma once

#include "runtime/base/text/options.hpp"

#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// A subcommand that starts no job.
struct Subcommand {
  std::string_view name;
  EarlyExit (*run)(std::span<const std::string> arguments);
  const OptionTable& (*options)();
};

/// All of them.
std::span<const Subcommand> subcommands();
/// The one of that name; nullptr for none.
const Subcommand* find_subcommand(std::string_view name);

}  // namespace dlaunch::launcher
