
#include "runtime/base/phrases.hpp"

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

TEST_CASE("lists of ranks") {
  CHECK(number_ranges({}) == "");
  CHECK(number_ranges({3}) == "3");
  CHECK(number_ranges({5, 0, 1, 2, 7}) == "0-2,5,7");
  CHECK(ranks_text({3}) == "rank 3");
  CHECK(ranks_text({1, 0}) == "ranks 0-1");
}

TEST_CASE("lists of names") {
  const std::vector<std::string> names = {"a", "b", "c"};
  CHECK(joined(names) == "a, b, c");
  CHECK(joined(names, in_quotes) == "'a', 'b', 'c'");
  CHECK(listed(names, 3) == "a, b and c");
  CHECK(listed(names, 2) == "a, b and 1 more");
  CHECK(listed(std::vector<std::string>{}, 2) == "");
}
