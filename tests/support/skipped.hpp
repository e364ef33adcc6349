#pragma once

#include <string>

namespace dlaunch::testing {

/// Says why this machine cannot run the test case that calls, which then returns. Its program ends
/// with the code that ctest counts as skipped, unless something failed.
void skipped(const std::string& why);

/// The exit code of a test program.
int exit_code(int doctest_result);

}  // namespace dlaunch::testing
