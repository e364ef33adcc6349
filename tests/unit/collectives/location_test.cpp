// Where a rank says that it runs, and who reads it.
#include "collectives/transport/message/location.hpp"

#include "runtime/world/local_store.hpp"

#include <dlaunch/error.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using transport::announce;
using transport::find_location;
using transport::Location;

TEST_CASE("a location is found as soon as its rank has announced it") {
  LocalStore store;
  announce(store, 2, {1, 0, 11});
  CHECK_FALSE(find_location(store, 1));
  announce(store, 1, {0, 1, 12});
  CHECK(find_location(store, 1) == Location{0, 1, 12});
  CHECK(find_location(store, 2) == Location{1, 0, 11});
}

TEST_CASE("a location of another form is refused") {
  LocalStore store;
  for (const char* wrong : {"", "short", "longer than a location is"}) {
    store.set("location/0", as_bytes(wrong));
    CHECK_THROWS_AS(find_location(store, 0), Error);
  }
}
