#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Common steps of our programs at their start and end.
namespace dlaunch {

/// Opens /dev/null for missing descriptors 0 to 2, so that no later descriptor becomes stdin,
/// stdout or stderr. `prints`: writing to a stdout that was missing fails, for a program whose
/// output is not to be lost without a word.
void fill_standard_descriptors(bool prints = false);
/// The signals that this process ignores because it was started so, as nohup does, and shells do
/// for background commands.
std::vector<int> ignored_signals();
/// Holds a signal back, which comes once it is let go. For a time in which nobody would serve it,
/// and it would end this process. Threads that are started meanwhile never get it.
void hold_signal(int number, bool held);
/// The variables that this process has, as "NAME=value".
std::vector<std::string> read_environment();
/// A file's text; nullopt, with errno, where it cannot be read, is longer than 16 MiB, or does not
/// end.
std::optional<std::string> read_whole_file(const std::string& path);
/// Writes the text to stdout, or to stderr unless the code is 0. Returns the code to exit with:
/// exit_code::internal where the text could not be written.
int say_and_exit_with(int code, std::string_view text);

}  // namespace dlaunch
