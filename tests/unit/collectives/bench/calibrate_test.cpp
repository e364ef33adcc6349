#include "collectives/bench/calibrate.hpp"

#include "collectives/communicator/table_in_use.hpp"
#include "tests/support/ranks.hpp"

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::bench;
using algorithms::built_in_table;
using algorithms::Topology;

namespace {

Settings quick() {
  const std::vector<std::string> words{"--calibrate", "table", "--iters",       "1",
                                       "--warmup",    "0",     "--repetitions", "1"};
  const auto parsed = parse_options(words);
  return std::get<Settings>(parsed);
}

std::vector<std::size_t> sizes(std::string_view name, const Topology& topology) {
  return sizes_to_measure(built_in_table(), *built_in_table().find(name), topology);
}

std::string refusal(const std::vector<std::string>& words) {
  const auto parsed = parse_options(words);
  const auto* ending = std::get_if<EarlyExit>(&parsed);
  return ending != nullptr ? ending->text : "";
}

}  // namespace

TEST_CASE("a line wins the sizes at which that pays") {
  // By twice, by nothing, at twice the cost, by a little, at ten times the cost.
  const std::vector<Duel> duels{{64, 1, 2}, {128, 1, 1}, {256, 2, 1}, {512, 1, 3}, {1024, 10, 1}};
  CHECK(best_cut(duels, 0) == 4);
  CHECK(best_cut(duels, 4) == 4);
  CHECK(best_cut(duels, 5) == 4);
  CHECK(best_cut(std::vector<Duel>{{64, 2, 1}, {128, 2, 1}}, 2) == 0);
  CHECK(best_cut(std::vector<Duel>{{64, 1, 2}, {128, 1, 2}}, 0) == 2);
  // A difference that two measurements of the same thing may have changes nothing.
  CHECK(best_cut(std::vector<Duel>{{64, 1, 1.01}, {128, 1, 1.01}}, 0) == 0);
  CHECK(best_cut(std::vector<Duel>{{64, 1.01, 1}, {128, 1.01, 1}}, 2) == 2);
  CHECK(best_cut(std::vector<Duel>{}, 0) == 0);
}

TEST_CASE("a line is measured where it decides") {
  const Topology shared{.ranks = 4, .shared = true}, links{.ranks = 4};
  const Topology nodes{.ranks = 4, .nodes = 2, .in_order = true, .is_even = true};
  const auto one_shot = sizes("shared.all_reduce.one_shot", shared);
  REQUIRE(!one_shot.empty());
  CHECK(one_shot.front() == 1024);  // Smaller ones go so anyway.
  CHECK(one_shot.back() == 32 * 4096);
  CHECK(sizes("shared.all_reduce.one_shot", links).empty());
  CHECK(sizes("shared.all_reduce.one_shot", {.ranks = 2, .shared = true}).empty());
  CHECK(sizes("links.all_reduce.bruck", shared).empty());
  CHECK(sizes("links.all_reduce.bruck", {.ranks = 2}).empty());
  CHECK(sizes("nodes.all_reduce.leaders", links).empty());
  for (const auto& name : {"nodes.all_reduce.leaders", "nodes.gather.leaders"}) {
    const auto found = sizes(name, nodes);
    CHECK(found.size() > 5);
    CHECK(std::is_sorted(found.begin(), found.end()));
  }
  CHECK(sizes("links.all_reduce.bruck", links).front() == 64);
  for (const auto& row : built_in_table().rows()) {
    for (const auto& topology : {shared, links, nodes}) {
      for (const std::size_t bytes : sizes_to_measure(built_in_table(), row, topology)) {
        CHECK(bytes * static_cast<std::size_t>(topology.ranks) <= std::size_t{64} << 20);
      }
    }
  }
}

TEST_CASE("limits as they are measured can be read again") {
  for (const int ranks : {2, 3}) {
    const auto outcomes = testing::run_ranks(ranks, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(std::chrono::seconds(60));
      comm.barrier();
      const Topology topology{.ranks = world.size(), .shared = testing::ranks_share_memory()};
      const auto digest = TableInUse::of(comm).digest();
      std::size_t told = 0;
      const auto entries =
          calibrate(comm, quick(), topology, [&](const algorithms::TableEntry&) { ++told; });
      const auto require = [](bool holds, const char* what) {
        if (!holds) throw std::runtime_error(what);
      };
      require(!entries.empty() && told == entries.size(), "nothing was measured");
      require(TableInUse::of(comm).digest() == digest, "another table is in use");
      const auto read = algorithms::parse_table(algorithms::table_text({}, entries));
      const auto* table = std::get_if<algorithms::Table>(&read);
      require(table != nullptr, "what was written is not read");
      for (const auto& entry : entries) {
        require(table->find(entry.name)->most == entry.most, "another limit");
      }
      std::uint64_t first[] = {table->digest()};
      comm.broadcast(first, 0);
      require(first[0] == table->digest(), "ranks found different limits");
    });
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
  }
}

TEST_CASE("--calibrate stands alone") {
  CHECK(quick().calibrate == "table");
  CHECK(refusal({"--calibrate", "x", "--explain"})
            .find("--calibrate writes a table and nothing else") != std::string::npos);
  CHECK(!refusal({"--calibrate", "x", "--json", "-"}).empty());
  CHECK(refusal({"--calibrate", ""}).find("the value is empty") != std::string::npos);
  CHECK(objection(quick(), 1)->text.find("one rank has nothing to choose") != std::string::npos);
  CHECK_FALSE(objection(quick(), 2));
}
