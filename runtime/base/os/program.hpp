#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Each of our programs does this at its start and its end.
namespace dlaunch {

/// Descriptors that are opened later must not become somebody's stdin, stdout or stderr.
void fill_standard_descriptors();
/// The signals that this process ignores: those that it was started so with. nohup does it, and
/// shells do it to what they run in the background.
std::vector<int> ignored_signals();
/// The variables that this process has, as "NAME=value".
std::vector<std::string> read_environment();
/// A file's text; nullopt where it cannot be read, is longer than 16 MiB, or does not end.
std::optional<std::string> read_whole_file(const std::string& path);
/// Writes the text to stdout, or to stderr unless the code is 0. Returns the code to exit with:
/// exit_code::internal where the text could not be written.
int say_and_exit_with(int code, std::string_view text);

}  // namespace dlaunch
