// On which node each rank is.
#include "collectives/algorithms/select/layout.hpp"

#include <vector>

#include <doctest/doctest.h>

using dlaunch::algorithms::Layout;

TEST_CASE("nodes are counted in the order of their first ranks") {
  const std::vector<std::uint64_t> numbers{7, 7, 3, 7, 5, 3};
  const Layout layout(numbers);
  CHECK(layout.ranks() == 6);
  CHECK(layout.nodes() == 3);
  CHECK(layout.members(0) == std::vector{0, 1, 3});
  CHECK(layout.members(1) == std::vector{2, 5});
  CHECK(layout.node_of(4) == 2);
  CHECK(layout.index_of(5) == 1);
  CHECK(layout.rank_at(0, 2) == 3);
  CHECK(layout.fewest() == 1);
  CHECK(layout.most() == 3);
  CHECK_FALSE(layout.in_order());
  CHECK_FALSE(layout.is_even());
}

TEST_CASE("ranks of a node that are a run are in order, whatever the nodes' numbers") {
  CHECK(Layout(std::vector<std::uint64_t>{9, 9, 2, 2}).in_order());
  CHECK(Layout(std::vector<std::uint64_t>{9, 9, 2, 2}).is_even());
  CHECK(Layout(std::vector<std::uint64_t>{4, 4, 4, 1}).in_order());
  CHECK_FALSE(Layout(std::vector<std::uint64_t>{1, 2, 1}).in_order());
}
