#pragma once

#include <string>
#include <string_view>
#include <vector>

/// What the public headers declare, in overview: read from their text. Pure.
namespace dlaunch::pages {

struct Declared {
  std::string name;                ///< "World", "dl_world_init".
  std::string about;               ///< The first sentence of its comment; may be empty.
  std::vector<std::string> calls;  ///< A class' public member functions.
};

/// What stands in a C++ header's namespaces with a comment.
std::vector<Declared> declared_in_cpp(std::string_view header);
/// A C header's one entry, with its first comment and all its functions.
Declared declared_in_c(std::string_view header);

}  // namespace dlaunch::pages
