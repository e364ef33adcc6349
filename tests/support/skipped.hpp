#pragma once

#include <string>

namespace dlaunch::testing {

/// Says why this machine cannot run the test case that calls, which then returns. Its program ends
/// with the code that ctest counts as skipped, unless something failed.
void skipped(const std::string& why);

/// What a test program ends with.
int exit_code(int doctest_result);

}  // namespace dlaunch::testing
