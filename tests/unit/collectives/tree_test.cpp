// Structured values: as values, on the wire, and over ranks.
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <limits>
#include <sstream>
#include <utility>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::run_ranks;

namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

Tree sample() {
  return Tree::dict({{"loss", 0.5},
                     {"step", 7},
                     {"done", false},
                     {"name", "first"},
                     {"none", nullptr},
                     {"grad", Tensor::of<float>({1, 2}, {2, 1})},
                     {"items", Tree::list({1, Tree::tuple({2, "x"})})}});
}

}  // namespace

TEST_CASE("a tree survives the wire, and what is no tree is refused") {
  const Tree tree = sample();
  const Bytes bytes = tree.encode();
  CHECK(Tree::decode(bytes) == tree);
  CHECK(Tree::decode(Tree().encode()) == Tree());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    CHECK_THROWS_AS(Tree::decode(BytesView(bytes).first(n)), Error);
  }
  Bytes longer = bytes;
  longer.push_back({});
  CHECK_THROWS_AS(Tree::decode(longer), Error);
  // A list that claims more items than there are bytes.
  Bytes lying = Tree::list({}).encode();
  for (std::size_t i = 5; i < lying.size(); ++i) lying[i] = std::byte{0x7f};
  CHECK_THROWS_AS(Tree::decode(lying), Error);
  Tree deep;
  for (int i = 0; i <= Tree::depth_max; ++i) deep = Tree::list({deep});
  CHECK_THROWS_AS(deep.encode(), Error);
}

TEST_CASE("a tree's parts, and dictionaries whatever the order of their keys") {
  const Tree tree = sample();
  CHECK(tree["step"].as<std::int64_t>() == 7);
  CHECK(tree["items"][1][1].as<std::string>() == "x");
  CHECK(tree.size() == 7);
  CHECK_THROWS_AS(tree["nothing"], Error);
  CHECK_THROWS_AS(tree["step"].as<double>(), Error);
  CHECK_THROWS_AS(tree["items"][2], Error);
  CHECK(Tree::dict({{"a", 1}, {"b", 2}}) == Tree::dict({{"b", 2}, {"a", 1}}));
  CHECK(!(Tree::dict({{"a", 1}}) == Tree::dict({{"a", 2}})));
  const std::vector<int> matrix{1, 2, 3, 4, 5, 6};
  const std::vector<std::int64_t> transposed{1, 3};
  const Tensor columns = Tensor::packed(matrix.data(), DType::i32, {3, 2}, transposed);
  const auto values = columns.values<int>();
  CHECK(std::vector<int>(values.begin(), values.end()) == std::vector{1, 4, 2, 5, 3, 6});
}

TEST_CASE("a tensor of values in a shape, which may be changed in place") {
  Tensor tensor = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(tensor.dtype == DType::f32);
  CHECK(tensor.shape == std::vector<std::int64_t>{2, 3});
  tensor.values<float>()[5] = 7;
  CHECK(std::as_const(tensor).values<float>()[5] == 7);
  CHECK_THROWS_AS(tensor.values<double>(), Error);
  CHECK_THROWS_AS(Tensor::of<float>({1, 2}, {3}), Error);
  CHECK(Tensor::of(std::vector<bool>{true, false}).values<bool>()[0]);
  CHECK(Tensor::of(std::vector<int>()).shape == std::vector<std::int64_t>{0});
}

TEST_CASE("what C++ has becomes a tree, and no more than fits") {
  CHECK(Tree(std::size_t{7}) == Tree(7));
  CHECK(Tree(std::uint8_t{255}) == Tree(255));
  CHECK(Tree(-3LL) == Tree(-3));
  CHECK(Tree(0.5F) == Tree(0.5));
  CHECK(std::string(Tree(true).kind()) == "bool");
  CHECK_THROWS_AS(Tree(~std::uint64_t{0}), Error);
  CHECK(Tree(std::vector<float>{1, 2}) == Tree(Tensor::of<float>({1, 2})));
  CHECK(Tree(std::vector<std::string>{"a", "b"}) == Tree::list({"a", "b"}));
  CHECK(Tree(std::vector<std::vector<int>>{{1}, {2, 3}}) ==
        Tree::list({std::vector{1}, std::vector{2, 3}}));
  CHECK(Tree(std::vector<Tree>{1, "x"}) == Tree::list({1, "x"}));
}

TEST_CASE("a tree's text shows it, and is read again beside its tensors") {
  const Tree tree = sample();
  const std::string text = tree.text();
  CHECK(text ==
        R"({"loss":0.5,"step":7,"done":false,"name":"first","none":null,)"
        R"("grad":{"$tensor":0,"dtype":"f32","shape":[2,1]},"items":[1,{"$tuple":[2,"x"]}]})");
  std::ostringstream out;
  out << tree;
  CHECK(out.str() == text);
  REQUIRE(tree.tensors().size() == 1);
  const std::vector<Tensor> beside{*tree.tensors()[0]};
  CHECK(Tree::parse(text, beside) == tree);
  CHECK(Tree::parse(tree.text(2), beside) == tree);
  CHECK(Tree::parse("[1, -2, 3.0, \"x\", null, true]") ==
        Tree::list({1, -2, 3.0, "x", nullptr, true}));
  for (const Tree& value :
       {Tree(std::numeric_limits<double>::infinity()), Tree(std::string("\xff\x00", 2)),
        Tree::dict({{"$key", 1}}), Tree::tuple({}), Tree()}) {
    CHECK(Tree::parse(value.text()) == value);
  }
  const auto sentence = [](std::string_view wrong) -> std::string {
    try {
      static_cast<void>(Tree::parse(wrong));
      return "";
    } catch (const Error& error) {
      CHECK(error.errc() == Errc::misuse);
      return error.what();
    }
  };
  CHECK(sentence("{\"a\": ").find("the text is no JSON") == 0);
  CHECK(sentence("{\"$tensor\": 1}") == "the text asks for tensor 1, 0 were given");
  CHECK(sentence("{\"$sum\": 1}").find("means nothing") != std::string::npos);
  CHECK(sentence(std::string(200, '[')).find("deeper than 64 levels") != std::string::npos);
}

TEST_CASE("broadcast, gather and scatter of trees") {
  for (const int size : {1, 3}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      const int root = comm.size() - 1;
      const Tree got = comm.broadcast_object(comm.rank() == root ? sample() : Tree("mine"), root);
      require(got == sample(), "broadcast: the root's value wins");
      const Tree mine = Tree::list({comm.rank(), std::string(1000, 'x')});
      const auto all = comm.all_gather_objects(mine);
      require(all.size() == static_cast<std::size_t>(comm.size()), "one value for each rank");
      for (int rank = 0; rank < comm.size(); ++rank) {
        require(all[static_cast<std::size_t>(rank)][0] == Tree(rank), "all_gather_objects");
      }
      const auto gathered = comm.gather_objects(mine, root);
      require(comm.rank() == root ? gathered == all : gathered.empty(), "gather_objects");
      require(comm.scatter_objects(gathered, root) == mine, "scatter_objects");
      comm.send_object(sample(), comm.rank(), {.tag = 4});
      require(comm.recv_object(comm.rank(), {.tag = 4}) == sample(), "a tree as a message");
    }));
  }
}

TEST_CASE("all_gather stacks on a new leading axis, also in a world of one") {
  for (const int size : {1, 4}) {
    check_all(run_ranks(size, [](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      const auto mine = static_cast<float>(comm.rank());
      const Tree got =
          comm.all_gather_stacked(Tree::dict({{"x", 10 * comm.rank()},
                                              {"t", Tensor::of<float>({mine, -mine}, {2, 1})},
                                              {"s", "text"}}));
      const auto& x = got["x"].as<Tensor>();
      const auto n = static_cast<std::int64_t>(comm.size());
      require(x.shape == std::vector<std::int64_t>{n, 1}, "the shape of a number");
      const auto& t = got["t"].as<Tensor>();
      require(t.shape == std::vector<std::int64_t>{n, 2, 1}, "the shape of a tensor");
      require(got["s"].size() == static_cast<std::size_t>(n), "text becomes a list");
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(n); ++rank) {
        require(x.values<std::int64_t>()[rank] == static_cast<std::int64_t>(10 * rank), "numbers");
        require(t.values<float>()[2 * rank + 1] == -static_cast<float>(rank), "tensors");
      }
    }));
  }
}

TEST_CASE("all_reduce folds tensors and numbers, whatever the order of keys") {
  check_all(run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const Tree a = Tree::dict({{"n", comm.rank()}, {"t", Tensor::of<float>({1, 2})}});
    const Tree b = Tree::dict({{"t", Tensor::of<float>({1, 2})}, {"n", comm.rank()}});
    const Tree got = comm.all_reduce_object(comm.rank() == 1 ? b : a);
    require(got == Tree::dict({{"n", 3}, {"t", Tensor::of<float>({3, 6})}}), "sum");
    require(comm.all_reduce_object(Tree(1.5), ReduceOp::mean) == Tree(1.5), "mean");
    require(comm.all_reduce_object(Tree(Tensor(DType::f32, {0, 3}))) ==
                Tree(Tensor(DType::f32, {0, 3})),
            "an empty tensor");
  }));
}

TEST_CASE("structures that differ are told by the first path that does") {
  const auto outcomes = run_ranks(3, [](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    const Tree inner = comm.rank() == 2 ? Tree::list({1, 2, 3}) : Tree::list({1, 2});
    static_cast<void>(
        comm.all_reduce_object(Tree::dict({{"a", 1}, {"b", Tree::list({0, inner})}})));
  });
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("rank 0 is in all_reduce_object #1 (sum) [tree_test.cpp:"),
                  outcome.text);
    CHECK_MESSAGE(outcome.mentions("] with a list of 2 items, but rank 2 is in "
                                   "all_reduce_object #1 (sum) [tree_test.cpp:"),
                  outcome.text);
    CHECK_MESSAGE(outcome.mentions("] with a list of 3 items: their values differ in structure at "
                                   "'.b[1]'"),
                  outcome.text);
  }
  const auto text = run_ranks(2, [](const World& world) {
    Communicator comm(world);
    static_cast<void>(comm.all_reduce_object(Tree::list({"same", comm.rank() == 0 ? "x" : "y"})));
  });
  for (const auto& outcome : text) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("] with 'x', but rank 1 is in all_reduce_object #1 (sum) ["),
                  outcome.text);
    CHECK_MESSAGE(outcome.mentions("] with 'y': their values differ at '[1]', where they are text "
                                   "and cannot be reduced"),
                  outcome.text);
  }
}

TEST_CASE("a tensor that no rank could decode fails where it is given, and is told to the others") {
  for (const bool has_axes : {true, false}) {
    CAPTURE(has_axes);
    const auto outcomes = run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      Tensor tensor(DType::f32, {1});
      if (has_axes) tensor.shape.assign(65, 1);
      if (!has_axes) tensor.data.resize(3);
      static_cast<void>(comm.broadcast_object(comm.rank() == 1 ? Tree(tensor) : Tree(), 1));
    });
    CHECK(outcomes[1].code == Errc::misuse);
    const char* const why = has_axes
                                ? "a tensor has 65 axes, and with more than 64 it cannot be sent"
                                : "a tensor has 3 bytes of data, which do not fit";
    for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.mentions(why), outcome.text);
    for (const int other : {0, 2}) {
      CHECK(outcomes[static_cast<std::size_t>(other)].code == Errc::mismatch);
    }
  }
}
