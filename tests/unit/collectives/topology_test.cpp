// Which ranks are on which node, and how a rank comes to know it.
#include "collectives/transport/message/topology.hpp"

#include "collectives/transport/links.hpp"
#include "runtime/world/local_store.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/error.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using transport::announce;
using transport::Location;
using transport::Survey;
using transport::Topology;

TEST_CASE("ranks are brought together by node, in the order of their local ranks") {
  // Node 5 comes after node 2, and its ranks are not in the world's order.
  const Topology topology({{5, 1, 7}, {2, 0, 9}, {5, 0, 7}, {2, 1, 8}, {9, 0, 0}});
  CHECK(topology.size() == 5);
  REQUIRE(topology.nodes() == 3);
  CHECK(topology.ranks_of(0) == std::vector<int>{1, 3});
  CHECK(topology.ranks_of(1) == std::vector<int>{2, 0});
  CHECK(topology.ranks_of(2) == std::vector<int>{4});
  CHECK(topology.node_of(0) == 1);
  CHECK(topology.index_of(0) == 1);
  CHECK(topology.index_of(2) == 0);
  CHECK(topology.node_of(4) == 2);
  CHECK_FALSE(topology.shares(0));  // Two segments.
  CHECK(topology.shares(1));
  CHECK_FALSE(topology.shares(2));  // None.
}

TEST_CASE("one rank without the segment is enough for a node not to share") {
  CHECK(Topology({{0, 0, 7}, {0, 1, 7}, {0, 2, 7}}).shares(0));
  CHECK_FALSE(Topology({{0, 0, 7}, {0, 1, 0}, {0, 2, 7}}).shares(0));
}

TEST_CASE("a rank that says the local rank of another keeps a location of its own") {
  const Topology topology({{0, 3, 7}, {0, 3, 7}});
  CHECK(topology.ranks_of(0) == std::vector<int>{0, 1});
  CHECK(topology.index_of(1) == 1);
}

TEST_CASE("a survey knows the topology as soon as all have announced themselves") {
  LocalStore store;
  Survey survey(3);
  CHECK(survey.ask(store) == nullptr);
  announce(store, 2, {1, 0, 11});
  announce(store, 0, {0, 0, 12});
  CHECK_FALSE(transport::find_location(store, 1));
  CHECK(survey.ask(store) == nullptr);
  CHECK(survey.topology() == nullptr);
  announce(store, 1, {0, 1, 12});
  CHECK(transport::find_location(store, 1) == Location{0, 1, 12});
  const Topology* topology = survey.ask(store);
  REQUIRE(topology != nullptr);
  CHECK(*topology == Topology({{0, 0, 12}, {0, 1, 12}, {1, 0, 11}}));
  CHECK(survey.topology() == topology);
}

TEST_CASE("a location of another form is refused") {
  LocalStore store;
  for (const char* wrong : {"", "short", "longer than a location is"}) {
    store.set("location/0", as_bytes(wrong));
    CHECK_THROWS_AS(transport::find_location(store, 0), Error);
    CHECK_THROWS_AS(Survey(1).ask(store), Error);
  }
}

TEST_CASE("a mesh that waits comes to know the topology; nobody has to answer for it") {
  if (testing::ranks_share_memory()) return;  // It makes segments of its own.
  std::vector<std::shared_ptr<testing::FakeMembership>> memberships;
  SegmentPlan plan;
  plan.world_ranks = {0, 1, 2};
  plan.arena_bytes = 1u << 20;
  const auto segment = Segment::create(plan);
  for (int rank = 0; rank < 3; ++rank) {
    memberships.push_back(std::make_shared<testing::FakeMembership>());
    memberships.back()->share(segment);
  }
  testing::Event known;
  const auto outcomes = testing::run_ranks(
      3,
      [&](const World& world) {
        transport::Links mesh(world);
        if (world.rank() == 2) {  // It announces itself and does nothing.
          if (!known.wait()) throw std::runtime_error("the others did not come to know it");
          return;
        }
        const auto lock = mesh.lock();
        const auto deadline = Clock::now() + std::chrono::seconds(30);
        while (mesh.topology() == nullptr && Clock::now() < deadline) mesh.step(deadline);
        const std::uint64_t id = segment->id();
        const Topology expected({{0, 0, id}, {0, 1, id}, {0, 2, id}});
        if (mesh.topology() == nullptr || *mesh.topology() != expected) {
          throw std::runtime_error("another topology");
        }
        if (world.rank() == 0) known.set();
      },
      memberships);
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}
