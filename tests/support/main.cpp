#include "tests/support/skipped.hpp"

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

int main(int argc, char** argv) {
  return dlaunch::testing::exit_code(doctest::Context(argc, argv).run());
}
