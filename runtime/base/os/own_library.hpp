#pragma once

#include <string>

namespace dlaunch {

/// One of our own libraries, loaded when it is needed first, and for good: from beside the file
/// that this code lies in, from the `lib` beside a program's `bin`, or from wherever the loader
/// finds it. A run path would do the same, and have each start search it for the C library. Returns
/// the function that the library offers under the name `entry`; null, and why.
void* own_library(const char* file, const char* entry, std::string& why);

}  // namespace dlaunch
