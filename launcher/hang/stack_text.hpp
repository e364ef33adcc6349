#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Cleans the stacks that tools print: lines that say nothing to a reader are dropped. Pure.
namespace dlaunch::launcher {

/// The output of gdb in batch mode, from its first thread on; nullopt where it shows no thread.
std::optional<std::string> stack_of_gdb(std::string_view printed);
/// The same for `py-spy dump`.
std::optional<std::string> stack_of_py_spy(std::string_view printed);
/// The last line that says something; empty where there is none.
std::string last_line(std::string_view printed);

}  // namespace dlaunch::launcher
