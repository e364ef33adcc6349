#include "tests/support/skipped.hpp"

#include <atomic>
#include <cstdio>

#include <doctest/doctest.h>

namespace dlaunch::testing {

namespace {

constexpr int code_of_skipped = 77;
std::atomic<bool> any_skipped = false;

}  // namespace

void skipped(const std::string& why) {
  any_skipped = true;
  // tests/skips reads this line.
  std::printf("skipped: %s: %s\n", doctest::getContextOptions()->currentTest->m_name, why.c_str());
  std::fflush(stdout);
}

int exit_code(int doctest_result) {
  return doctest_result == 0 && any_skipped ? code_of_skipped : doctest_result;
}

}  // namespace dlaunch::testing
