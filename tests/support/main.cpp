#include "tests/support/skipped.hpp"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#if defined(__SANITIZE_THREAD__)
/// The C++ runtime counts an exception's owners in code that ThreadSanitizer does not see, so the
/// end of the last owner seems to race with an earlier one's reading. Only that reading is left
/// out.
extern "C" const char* __tsan_default_suppressions() {  // NOLINT: its name is the sanitizer's.
  return "race:doctest::detail::ResultBuilder::translateException\n";
}
#endif

int main(int argc, char** argv) {
  return dlaunch::testing::exit_code(doctest::Context(argc, argv).run());
}
