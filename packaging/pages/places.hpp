#pragma once

#include <functional>
#include <string>
#include <string_view>

/// Texts of ours with places for what the tables of options, the documents and the public headers
/// know. Pure.
namespace dlaunch::pages {

/// A file of the tree, by its path from the root.
using ReadFile = std::function<std::string(const std::string& path)>;

/// Fills a text's places, each a line:
///   @version@                   anywhere in a line
///   @options dlaunch bench@     the command's own options
///   @keys dlaunchd@             the keys of its configuration file
///   @closing dlaunch@           what its --help ends with
///   @table docs/FILE.md H@      the first table behind the heading H
///   @classes FILE.hpp@          what a public C++ header declares
///   @functions FILE.h@          what a public C header declares
///   @bash_options@, @bash_values@, @zsh_functions@, @fish_options dlaunch@, @fish_subcommands@
/// Throws std::runtime_error for another one.
std::string fill_places(std::string_view text, const ReadFile& read_file);

}  // namespace dlaunch::pages
