#include "collectives/transport/message/by_rank.hpp"

#include <map>
#include <string>

#include <doctest/doctest.h>

using dlaunch::transport::ByRank;

TEST_CASE("what is kept for ranks is found again, and stays where it is") {
  for (const int distance : {1, 2, 64, 1000, 65536}) {
    CAPTURE(distance);
    ByRank<std::string> kept;
    std::map<int, const std::string*> places;
    for (int i = 0; i < 500; ++i) {
      const int rank = i * distance;
      CHECK(kept.find(rank) == nullptr);
      const std::string& made = kept.get(rank, std::to_string(rank));
      places[rank] = &made;
      CHECK(&kept.get(rank, "another") == &made);
    }
    CHECK(kept.size() == places.size());
    for (const auto& [rank, place] : places) {
      CHECK(kept.find(rank) == place);
      CHECK(*place == std::to_string(rank));
      CHECK(kept.find(rank + 500 * distance) == nullptr);
    }
    int next = 0;
    for (const auto& [rank, text] : kept) {
      CHECK(rank == next);
      next += distance;
    }
  }
}

TEST_CASE("where nothing is kept nothing is found") {
  const ByRank<std::string> kept;
  CHECK(kept.find(0) == nullptr);
  CHECK(kept.begin() == kept.end());
}
