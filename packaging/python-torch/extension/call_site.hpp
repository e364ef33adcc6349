#pragma once

#include <dlaunch/options.hpp>

#include <string>

namespace dlaunch::torch_backend {

/// The line of the program that makes the call of this thread, outside of the folders that were
/// told; an empty place where no Python stands behind it, as in a backward pass. Valid as long as
/// the process.
CallSite place_of_program();

/// Code in this folder is not the program's.
void skip_code_in(std::string folder);

}  // namespace dlaunch::torch_backend
