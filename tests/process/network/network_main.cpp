// Tests that need a network of their own say so, and are skipped, where none can be made.
#include "tests/process/network/network.hpp"
#include "tests/support/skipped.hpp"

#include <cstdio>

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  constexpr int skipped = 77;
  if (const auto why = dlaunch::process_test::network_unavailable()) {
    std::printf("skipped: %s\n", why->c_str());
    return skipped;
  }
  return dlaunch::testing::exit_code(doctest::Context(argc, argv).run());
}
