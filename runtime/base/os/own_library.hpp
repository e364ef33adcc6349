#pragma once

#include <string>

namespace dlaunch {

/// Loads one of our own libraries, for good: from beside the file that this code lies in, from the
/// `lib` beside a program's `bin`, or from wherever the loader finds it. (A run path would do the
/// same, but each start would also search it for the C library.) Returns the function that the
/// library offers under the name `entry`; on failure null, and why.
void* own_library(const char* file, const char* entry, std::string& why);

}  // namespace dlaunch
