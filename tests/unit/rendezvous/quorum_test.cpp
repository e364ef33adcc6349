#include "rendezvous/succession/muster.hpp"

#include <doctest/doctest.h>

namespace dlaunch::rendezvous {
namespace {

Clock::time_point at(int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); }

TEST_CASE("more than half of an epoch's nodes may go on elsewhere, half of them may not") {
  Quorum quorum;
  quorum.begin(1, {1, 2, 3, 4});
  quorum.lost(4);
  quorum.lost(3);
  CHECK_FALSE(quorum.outvoted());
  quorum.lost(3);
  CHECK_FALSE(quorum.outvoted());
  quorum.lost(2);
  REQUIRE(quorum.outvoted());
  CHECK(quorum.outvoted()->epoch == 1);
  CHECK(quorum.outvoted()->apart == 3);
  quorum.forget(4);
  CHECK_FALSE(quorum.outvoted());
}

TEST_CASE("a node goes by the last epoch that it is known to have heard of") {
  Quorum quorum;
  quorum.begin(1, {1, 2, 3, 4, 5});
  quorum.lost(5);
  quorum.lost(4);
  quorum.begin(2, {1, 2, 3});
  SUBCASE("which may be the one before") {
    quorum.lost(3);
    REQUIRE(quorum.outvoted());
    CHECK(quorum.outvoted()->epoch == 1);
  }
  SUBCASE("and is the new one where it has said so") {
    quorum.heard_of(3, 2);
    quorum.lost(3);
    CHECK_FALSE(quorum.outvoted());
    CHECK(quorum.of(2).apart == 1);
  }
}

TEST_CASE("an epoch by which no node here goes is forgotten") {
  Quorum quorum;
  quorum.begin(1, {1, 2, 3});
  quorum.begin(2, {1, 2, 3});
  for (const Quorum::Session node : {1u, 2u, 3u}) quorum.heard_of(node, 2);
  quorum.begin(3, {1, 2, 3});
  CHECK(quorum.of(1).nodes == 0);
  CHECK(quorum.of(2).nodes == 3);
}

TEST_CASE("the nodes of a lost host come together") {
  Quorum quorum;
  quorum.take_over(7, 4);
  Muster muster({1, 7, 4}, at(12));
  const auto come = [&](Quorum::Session node) {
    quorum.came(node, 7);
    muster.came(node);
  };
  come(1);
  come(2);
  CHECK(muster.text(quorum) == "2 of the 4 nodes of epoch 7 have come");
  CHECK(muster.step(quorum, 2, 1, at(0)) == Muster::Step::wait);
  CHECK(muster.step(quorum, 2, 1, at(12)) == Muster::Step::give_up);
  come(3);
  CHECK(muster.step(quorum, 3, 1, at(1)) == Muster::Step::wait);
  for (const Quorum::Session node : {1u, 2u, 3u}) CHECK(muster.ended(node));
  CHECK(muster.step(quorum, 3, 1, at(1)) == Muster::Step::close);
  CHECK(muster.step(quorum, 3, 4, at(1)) == Muster::Step::wait);
  CHECK(muster.step(quorum, 3, 4, at(12)) == Muster::Step::give_up);
  quorum.lost(3);
  muster.gone(3);
  CHECK(muster.step(quorum, 2, 1, at(12)) == Muster::Step::give_up);
  CHECK_FALSE(muster.ended(3));
}

TEST_CASE("three of five are enough, but not before the others have had their time") {
  Quorum quorum;
  quorum.take_over(7, 5);
  Muster muster({1, 7, 5}, at(12));
  for (const Quorum::Session node : {1u, 2u, 3u}) {
    quorum.came(node, 7);
    muster.came(node);
    muster.ended(node);
  }
  CHECK(muster.step(quorum, 3, 2, at(11)) == Muster::Step::wait);
  CHECK(muster.step(quorum, 3, 2, at(12)) == Muster::Step::close);
  muster.forgive(std::chrono::seconds(5));
  CHECK(muster.step(quorum, 3, 2, at(12)) == Muster::Step::wait);
}

}  // namespace
}  // namespace dlaunch::rendezvous
