#pragma once

#include <string>
#include <string_view>

/// What the tables of options say, as the completions of shells have it. Pure.
namespace dlaunch::pages {

/// Branches of a `case` over commands: each echoes the command's options.
std::string bash_options();
/// Branches of a `case` over commands with an option: each echoes what its value may be.
std::string bash_values();
/// A branch of the same, for the words behind `dlaunch ctl`.
std::string bash_ctl();
/// A function for each command: _dlaunch_options, _dlaunch_bench_options...
std::string zsh_functions();
/// A line for each subcommand of dlaunch, and for each word behind `dlaunch ctl`.
std::string fish_subcommands();
/// A line for each option of a program and its subcommands.
std::string fish_options(std::string_view program);

}  // namespace dlaunch::pages
