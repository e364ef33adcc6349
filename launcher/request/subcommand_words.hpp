#pragma once

#include <span>
#include <string_view>

namespace dlaunch::launcher {

/// A subcommand, and what it does in a few words: for --help, and for shells that show it.
struct SubcommandWords {
  std::string_view name;
  std::string_view what;  ///< "List live jobs".
};

/// All of them by name, those that start a job too.
std::span<const SubcommandWords> subcommand_words();

}  // namespace dlaunch::launcher
