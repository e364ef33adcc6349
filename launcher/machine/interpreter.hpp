#pragma once

#include <span>
#include <string>

namespace dlaunch::launcher {

/// The Python that torchrun, which is installed in an environment, would use: the Python of the
/// environment or the wheel to which `launcher` (this program's path) belongs, else that of the
/// environment that VIRTUAL_ENV names. Empty where there is none: then PATH decides.
std::string environment_python(std::span<const std::string> environment,
                               const std::string& launcher);
/// The folder of this program.
std::string launcher_path();

}  // namespace dlaunch::launcher
