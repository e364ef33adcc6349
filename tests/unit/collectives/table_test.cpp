// The table by which algorithms are chosen: what is in it, what it is read from, and that all ranks
// go by the same.
#include "collectives/algorithms/select/select.hpp"
#include "collectives/algorithms/select/table_text.hpp"
#include "collectives/communicator/table_in_use.hpp"
#include "runtime/world/table_file.hpp"
#include "tests/support/grid.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/temporary_folder.hpp"

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::algorithms;
using testing::run_ranks;
using transport::Op;

namespace {

std::string complaint(const std::string& text) {
  const auto read = parse_table(text);
  const auto* sentence = std::get_if<std::string>(&read);
  return sentence != nullptr ? *sentence : "";
}

Table with_all_limits(std::size_t most) {
  Table table;
  for (const Row& row : built_in_table().rows()) {
    if (!row.name.empty()) table.set_limit(row.name, most);
  }
  return table;
}

std::shared_ptr<const Table> shared(Table table) {
  return std::make_shared<const Table>(std::move(table));
}

}  // namespace

TEST_CASE("the table") {
  SUBCASE("has a line for every call, size and number of ranks") {
    for (const Op op :
         {Op::barrier, Op::broadcast, Op::reduce, Op::all_reduce, Op::all_gather, Op::gather,
          Op::scatter, Op::reduce_scatter, Op::all_to_all, Op::scan, Op::exscan}) {
      for (const int ranks : {1, 2, 3, 16, 17, 1000, 100'000}) {
        for (const std::size_t bytes : {0UL, 1UL, 4096UL, 1UL << 20, 1UL << 40}) {
          CHECK_FALSE(built_in_table().select(op, bytes, {ranks}).why.empty());
          CHECK_FALSE(built_in_table().select(op, bytes, {ranks, true}).why.empty());
          CHECK_FALSE(built_in_table().select(op, bytes, {ranks, true, true}).why.empty());
        }
      }
    }
  }
  SUBCASE("chooses by size") {
    const auto algorithm = [](std::size_t bytes, int ranks) {
      return built_in_table().select(Op::all_reduce, bytes, {ranks}).algorithm;
    };
    CHECK(algorithm(4, 2) == Messages::exchange);
    CHECK(algorithm(1 << 30, 2) == Messages::exchange);
    CHECK(algorithm(16 << 10, 4) == Messages::bruck);
    CHECK(algorithm((16 << 10) + 1, 4) == Messages::in_parts);
    CHECK(algorithm(4096, 64) == Messages::tree);
    CHECK(algorithm(1 << 20, 64) == Messages::in_parts);
    CHECK(built_in_table()
              .select(Op::all_reduce, 4096, {.ranks = 64, .freedom = Freedom::any})
              .algorithm == Messages::halving);
    const auto any_order = [](std::size_t bytes, int ranks) {
      return built_in_table()
          .select(Op::all_reduce, bytes, {.ranks = ranks, .freedom = Freedom::any})
          .algorithm;
    };
    CHECK(any_order(64 << 20, 64) == Messages::in_parts);
    CHECK(any_order(64 << 20, 65) == Messages::ring);
    CHECK(any_order(64 << 10, 4) == Messages::halving);
    CHECK(any_order((64 << 10) + 1, 4) == Messages::in_parts);
    CHECK(algorithm(64 << 20, 65) == Messages::in_parts);
    CHECK(built_in_table()
              .select(Op::all_reduce, 64 << 20, {.ranks = 65, .freedom = Freedom::extends})
              .algorithm == Messages::chain);
  }
  SUBCASE("chooses by size and buffers where memory is shared") {
    const auto algorithm = [](Op op, std::size_t bytes, int ranks, bool registered) {
      return built_in_table().select(op, bytes, {ranks, true, registered}).algorithm;
    };
    CHECK(algorithm(Op::all_reduce, 112, 4, true) == Shared::flag_line);
    CHECK(algorithm(Op::all_reduce, 121, 4, true) == Shared::one_shot);
    CHECK(algorithm(Op::all_reduce, 1024, 4, false) == Shared::one_shot);
    CHECK(algorithm(Op::all_reduce, 1024, 4, true) == Shared::in_place);
    CHECK(algorithm(Op::all_reduce, 8192, 2, false) == Shared::one_shot);
    CHECK(algorithm(Op::all_reduce, 4097, 3, false) == Shared::two_shot);
    CHECK(algorithm(Op::reduce, 1 << 20, 3, true) == Shared::two_shot);
    CHECK(algorithm(Op::broadcast, 121, 3, true) == Shared::in_place);
    CHECK(algorithm(Op::all_to_all, 1023, 3, true) == Shared::slots);
  }
  SUBCASE("chooses by nodes, by what their ranks' places and the reduction allow") {
    const auto algorithm = [](Op op, std::size_t bytes, bool in_order, bool even, Freedom freedom) {
      const Topology nodes{
          .ranks = 8, .nodes = 3, .in_order = in_order, .is_even = even, .freedom = freedom};
      return built_in_table().select(op, bytes, nodes).algorithm;
    };
    CHECK(algorithm(Op::barrier, 0, false, false, Freedom::none) == ByNode::leaders);
    CHECK(algorithm(Op::all_reduce, 64, false, false, Freedom::none) == ByNode::leaders);
    CHECK(algorithm(Op::all_reduce, 1 << 20, true, false, Freedom::extends) == ByNode::chain);
    CHECK(algorithm(Op::all_reduce, 1 << 20, false, true, Freedom::extends) == Messages::in_parts);
    CHECK(algorithm(Op::all_reduce, 1 << 20, true, true, Freedom::none) == Messages::in_parts);
    CHECK(algorithm(Op::all_reduce, 1 << 20, false, true, Freedom::any) == ByNode::slices);
    CHECK(algorithm(Op::all_reduce, 1 << 20, true, true, Freedom::any) == ByNode::slices);
    CHECK(built_in_table()
              .select(Op::all_reduce, 1 << 20,
                      {.ranks = 8, .nodes = 2, .in_order = true, .freedom = Freedom::any})
              .algorithm == ByNode::chain);
    CHECK(algorithm(Op::all_gather, 1 << 20, true, true, Freedom::none) == ByNode::slices);
    CHECK(algorithm(Op::all_gather, 1 << 20, true, false, Freedom::none) == Messages::ring);
    CHECK(algorithm(Op::reduce_scatter, 1 << 20, true, true, Freedom::any) == ByNode::chain);
    CHECK(algorithm(Op::reduce_scatter, 1 << 20, true, false, Freedom::any) == Messages::in_parts);
  }
  SUBCASE("gathers for small scans, and for those that cannot be taken apart") {
    const auto scan = [](std::size_t bytes, bool is_shared, Freedom freedom) {
      return built_in_table()
          .select(Op::scan, bytes, {.ranks = 4, .shared = is_shared, .freedom = freedom})
          .algorithm;
    };
    CHECK(scan(16 << 10, false, Freedom::extends) == Messages::gathered);
    CHECK(scan((16 << 10) + 1, false, Freedom::extends) == Messages::chain);
    CHECK(scan(1 << 30, false, Freedom::none) == Messages::gathered);
    CHECK(scan(1 << 30, true, Freedom::any) == Shared::gathered);
  }
  SUBCASE("explains itself") {
    const std::string text = built_in_table().explain({4});
    CHECK(text.find("all_reduce, up to 16 KiB: Bruck (") != std::string::npos);
    CHECK(text.find("all_reduce, above 16 KiB: in parts (") != std::string::npos);
    CHECK(text.find("all_reduce, any size") == std::string::npos);
    CHECK(text.find("barrier, any size: dissemination (") != std::string::npos);
    const std::string shared = built_in_table().explain({4, true});
    CHECK(shared.find("all_reduce, up to 120 bytes: flag line (") == 0);
    CHECK(shared.find("all_reduce, up to 4 KiB: one shot (") != std::string::npos);
    CHECK(shared.find("all_to_all, any size: slots (") != std::string::npos);
    CHECK(shared.find("in place") == std::string::npos);
    CHECK(built_in_table()
              .explain({4, true, true})
              .find("all_gather, above 1023 bytes: in place (") != std::string::npos);
    CHECK(built_in_table().explain({2}).find("all_reduce, any size: exchange (") !=
          std::string::npos);
  }
}

TEST_CASE("a table as text") {
  SUBCASE("is read as it was written") {
    std::vector<TableEntry> entries;
    std::size_t most = 1;
    for (const Row& row : built_in_table().rows()) {
      if (!row.name.empty()) entries.push_back({std::string(row.name), most *= 3, "why"});
    }
    CHECK(entries.size() > 15);
    entries.back().most = unlimited;
    const std::vector<std::string> comments{"here", ""};
    const auto read = parse_table(table_text(comments, entries));
    REQUIRE(std::holds_alternative<Table>(read));
    const Table& table = std::get<Table>(read);
    for (const auto& entry : entries) CHECK(table.find(entry.name)->most == entry.most);
    CHECK(table.digest() != built_in_table().digest());
  }
  SUBCASE("says nothing, and is the table in the tree") {
    const auto read = parse_table("dlaunch-table 1\r\n# nothing\n\n");
    CHECK(std::get<Table>(read).digest() == built_in_table().digest());
  }
  SUBCASE("keeps the limits that it does not name") {
    const auto read = parse_table("dlaunch-table 1\n links.broadcast.tree\t=  7 ");
    const Table& table = std::get<Table>(read);
    CHECK(table.find("links.broadcast.tree")->most == 7);
    CHECK(table.find("links.reduce.tree")->most ==
          built_in_table().find("links.reduce.tree")->most);
  }
  SUBCASE("says what is wrong, and where") {
    const std::string title = "dlaunch-table 1\n";
    CHECK(complaint("") == "it is empty; dlaunch bench --calibrate makes a table");
    CHECK(complaint("dlaunch-table 2\n").starts_with("line 1: 'dlaunch-table 2' is not "));
    CHECK(complaint("\n" + title).starts_with("line 1: '' is not "));
    CHECK(complaint(std::string("\x7f"
                                "ELF\0\1",
                                6))
              .starts_with("line 1: '?ELF?"));
    CHECK(complaint(title + "# so\nx = 1").starts_with("line 3: 'x' names no line of this "));
    CHECK(complaint(title + "= 1").starts_with("line 2: '' names no line"));
    CHECK(complaint(title + "links.broadcast.tree 1") ==
          "line 2: 'links.broadcast.tree 1' is not NAME = NUMBER");
    for (const char* value : {"", "-1", "1k", "1.5", "0x10", "none", "99999999999999999999999",
                              "1152921504606846977", "1 2"}) {
      CHECK_MESSAGE(complaint(title + "links.broadcast.tree=" + value)
                            .find("is neither a whole number from 0 to 2^60 nor 'unlimited'") !=
                        std::string::npos,
                    value);
    }
    CHECK(complaint(title + "links.broadcast.tree=1\nlinks.broadcast.tree=1") ==
          "line 3: 'links.broadcast.tree' is there for the second time");
    CHECK(complaint(title + std::string(1000, 'x')).size() < 120);
  }
}

TEST_CASE("every name is that of one line, and moving its limit is another table") {
  std::vector<std::uint64_t> digests{built_in_table().digest()};
  for (const Row& row : built_in_table().rows()) {
    if (row.name.empty()) continue;
    CHECK(built_in_table().find(row.name) == &row);
    Table moved;
    moved.set_limit(row.name, row.most == 12345 ? 1 : 12345);
    for (const auto digest : digests) CHECK(moved.digest() != digest);
    digests.push_back(moved.digest());
  }
}

TEST_CASE("rank 0's table is that of all ranks") {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "table").string();
  std::ofstream(path) << "dlaunch-table 1\nlinks.all_reduce.bruck = 123\n";
  const auto outcomes = run_ranks(3, [&](const World& world) {
    if (world.rank() == 0) publish_table(*world.store(), path);
    barrier(*world.store(), "told", world.rank(), world.size(),
            Clock::now() + std::chrono::seconds(20));
    Communicator comm(world);
    const Table& table = TableInUse::of(comm);
    if (table.find("links.all_reduce.bruck")->most != 123)
      throw std::runtime_error("another table");
    if (table.title().find("'" + path + "' of rank 0 (") != 0)
      throw std::runtime_error(table.title());
    const Communicator half = *comm.split(comm.rank() % 2);
    if (TableInUse::of(half).digest() != table.digest()) throw std::runtime_error("a group's");
    if (world.rank() != 0) compare_table(*world.store(), world.rank(), path);
    if (world.rank() != 0) compare_table(*world.store(), world.rank(), "/nowhere");
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a table that cannot be read is an error that all ranks get alike") {
  const testing::TemporaryFolder folder;
  const std::string wrong = (folder.path() / "wrong").string(),
                    long_one = (folder.path() / "long").string();
  std::ofstream(wrong) << "dlaunch-table 1\nsize = 3\n";
  std::ofstream(long_one) << std::string(table_bytes_max + 1, '#');
  for (const auto& each : std::vector<std::pair<std::string, std::string>>{
           {wrong, "' of rank 0: line 2: 'size' names no line"},
           {long_one, "': it is longer than 64 KiB"},
           {"/nowhere", "DLAUNCH_TABLE: rank 0 cannot read '/nowhere': No such file"},
           {"/", "it is not a file"},
           {"/dev/zero", "it is not a file"}}) {
    const auto& path = each.first;
    const auto& why = each.second;
    const auto outcomes = run_ranks(2, [&](const World& world) {
      if (world.rank() == 0) publish_table(*world.store(), path);
      barrier(*world.store(), "told", world.rank(), world.size(),
              Clock::now() + std::chrono::seconds(20));
      const Communicator comm(world);
    });
    for (const auto& outcome : outcomes) {
      CHECK(outcome.code == Errc::misuse);
      CHECK_MESSAGE(outcome.mentions(why), outcome.text);
    }
  }
}

TEST_CASE("another table on another rank is an error that names both") {
  const testing::TemporaryFolder folder;
  const std::string one = (folder.path() / "one").string(), two = (folder.path() / "two").string();
  std::ofstream(one) << "dlaunch-table 1\n";
  std::ofstream(two) << "dlaunch-table 1\n# else\n";
  const auto store = std::make_shared<LocalStore>();
  CHECK_THROWS_WITH_AS(compare_table(*store, 3, one),
                       doctest::Contains("for rank 3, but nothing for rank 0"), Error);
  publish_table(*store, one);
  compare_table(*store, 3, one);
  CHECK_THROWS_WITH_AS(compare_table(*store, 3, two),
                       doctest::Contains(("names '" + two +
                                          "' for rank 3, in which there is "
                                          "something else than in '" +
                                          one + "' of rank 0")
                                             .c_str()),
                       Error);
}

TEST_CASE("ranks that go by different tables find it out in their first call") {
  const auto outcomes = run_ranks(3, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(std::chrono::seconds(20));
    if (world.rank() == 1) TableInUse::replace(comm, shared(with_all_limits(0)));
    std::vector<float> x(1000);
    comm.all_reduce(x);
  });
  int told = 0;
  for (const auto& outcome : outcomes) {
    told += outcome.code == Errc::mismatch &&
            outcome.mentions("by another table of algorithms than the one here, built in (");
    CHECK_FALSE(outcome.ok());
  }
  CHECK(told >= 2);
}

TEST_CASE("under tables of nothing but zeros, and of nothing but no limits, results are right") {
  for (const std::size_t most : {std::size_t{0}, unlimited}) {
    for (const int size : {2, 3, 5}) {
      const auto outcomes = run_ranks(size, [&](const World& world) {
        Communicator comm(world);
        TableInUse::replace(comm, shared(with_all_limits(most)));
        for (const std::size_t count : {0UL, 1UL, 33UL, 3000UL}) {
          testing::grid::check_types<float, std::int32_t, bfloat16>(comm, count);
        }
        // More than a slot holds.
        std::vector<float> in(200'000, 1), out(in.size());
        comm.reduce(in, out, 1);
        if (comm.rank() == 1 && out != std::vector<float>(in.size(), static_cast<float>(size))) {
          throw std::runtime_error("a wrong sum at the root");
        }
        std::vector<float> x(300'000, 1);
        comm.all_reduce(x, Reduction(ReduceOp::sum).any_order());
        if (x != std::vector<float>(x.size(), static_cast<float>(size))) {
          throw std::runtime_error("a wrong sum");
        }
      });
      for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
    }
  }
}
