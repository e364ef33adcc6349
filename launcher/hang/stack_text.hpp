#pragma once

#include <optional>
#include <string>
#include <string_view>

/// The texts of stacks: what a tool printed, without what is not for the reader. Pure.
namespace dlaunch::launcher {

/// What gdb printed in batch mode, from its first thread on; nullopt where it shows no thread.
std::optional<std::string> stack_of_gdb(std::string_view printed);
/// The same of py-spy dump.
std::optional<std::string> stack_of_py_spy(std::string_view printed);
/// The last line that says something; empty where there is none.
std::string last_line(std::string_view printed);

}  // namespace dlaunch::launcher
