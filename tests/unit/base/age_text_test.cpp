#include "runtime/base/text/age_text.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;

TEST_CASE("ages are said as people say them") {
  CHECK(age_text(0ns) == "0 ms");
  CHECK(age_text(40ms) == "40 ms");
  CHECK(age_text(1234ms) == "1.2 s");
  CHECK(age_text(59600ms) == "60 s");
  CHECK(age_text(20min) == "20 min");
  CHECK(age_text(2h) == "2 h");
}
