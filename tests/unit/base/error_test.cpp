#include <dlaunch/error.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;

TEST_CASE("the numbers of the codes are a contract") {
  CHECK(static_cast<int>(Errc::timeout) == 1);
  CHECK(static_cast<int>(Errc::peer_lost) == 2);
  CHECK(static_cast<int>(Errc::aborted) == 3);
  CHECK(static_cast<int>(Errc::mismatch) == 4);
  CHECK(static_cast<int>(Errc::unreachable) == 5);
  CHECK(static_cast<int>(Errc::refused) == 6);
  CHECK(static_cast<int>(Errc::misuse) == 7);
  CHECK(static_cast<int>(Errc::revoked) == 8);
  CHECK(static_cast<int>(Errc::unsupported) == 9);
  CHECK(static_cast<int>(Errc::version) == 10);
  CHECK(static_cast<int>(Errc::internal) == 11);
}

TEST_CASE("an error compares by code and reads as a sentence") {
  const Error error(Errc::peer_lost, "all_reduce: rank 3 lost rank 5: connection reset");
  CHECK(error.code() == Errc::peer_lost);
  CHECK(error.errc() == Errc::peer_lost);
  CHECK(std::string(error.what()) == "all_reduce: rank 3 lost rank 5: connection reset");
}
