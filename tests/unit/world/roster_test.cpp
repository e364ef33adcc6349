#include "runtime/world/by_hand/roster.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("who fits is admitted, once") {
  Roster roster(2);
  CHECK_FALSE(roster.admit({0, 2, 10, "a"}));
  CHECK_FALSE(roster.complete());
  const auto why = roster.admit({0, 2, 11, "b"});
  REQUIRE(why);
  CHECK(*why ==
        "rank 0 is taken by pid 10 on a, and pid 11 on b claims it, too: every process needs a "
        "rank of its own");
  CHECK_FALSE(roster.admit({1, 2, 12, "b"}));
  CHECK(roster.complete());
}

TEST_CASE("who disagrees on the size, or is outside of it, is told both sides") {
  Roster roster(2);
  CHECK_FALSE(roster.admit({0, 2, 10, "a"}));
  CHECK(roster.admit({2, 3, 12, "b"}).value() ==
        "rank 2 (pid 12 on b) says the world has 3 ranks, but rank 0 (pid 10 on a) says 2: the "
        "world size must be the same everywhere");
  CHECK(roster.admit({2, 2, 13, "b"}).value() ==
        "rank 2 (pid 13 on b) is not in a world of 2: ranks go from 0 to 1");
}

TEST_CASE("the attendance names who is missing, who came, and who was refused") {
  Roster roster(4);
  CHECK_FALSE(roster.admit({0, 4, 10, "a"}));
  CHECK_FALSE(roster.admit({2, 4, 12, "b"}));
  CHECK(roster.attendance() ==
        "ranks 1 and 3 of 4 did not come; who came: rank 0 (pid 10 on a) and rank 2 (pid 12 on b)");
  CHECK(roster.admit({2, 4, 13, "b"}));
  CHECK(roster.attendance().find("refused: rank 2 is taken by pid 12 on b") != std::string::npos);
}

TEST_CASE("a long attendance is cut") {
  Roster roster(10000);
  const std::string text = roster.attendance();
  CHECK(text.size() < 1000);
  CHECK(text.find("more of 10000 did not come") != std::string::npos);
}
