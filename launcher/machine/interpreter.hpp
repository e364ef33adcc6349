#pragma once

#include <span>
#include <string>

namespace dlaunch::launcher {

/// The Python of an environment, as torchrun would run it, which lies in one: of that in which
/// `launcher`, this program's path, is installed, or the Python whose wheel it is; else of the one
/// that VIRTUAL_ENV names. Empty where there is none: then PATH decides.
std::string environment_python(std::span<const std::string> environment,
                               const std::string& launcher);
/// The folder of this program.
std::string launcher_path();

}  // namespace dlaunch::launcher
