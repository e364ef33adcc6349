#pragma once

#include <span>
#include <string>
#include <string_view>

namespace dlaunch::launcher {

/// A word as one would type it into a shell.
std::string shell_word(std::string_view word);
/// Words likewise, with blanks between them.
std::string shell_line(std::span<const std::string> words);

}  // namespace dlaunch::launcher
