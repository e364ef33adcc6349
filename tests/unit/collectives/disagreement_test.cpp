// Ranks that make different calls: every rank is told both, with who made them and where, within a
// second.
#include "tests/support/disagreement.hpp"

#include "collectives/call/core/rooted_window.hpp"
#include "tests/support/side_by_side.hpp"

#include <regex>

using namespace dlaunch;
using testing::check_both_ways;
using testing::check_pair;
using testing::check_told;
using Call = testing::DifferingCall;

namespace {

std::vector<float>& floats(std::size_t count) {
  thread_local std::vector<float> x;
  x.assign(count, 1);
  return x;
}

std::string elements(std::size_t count) { return std::to_string(count) + " elements"; }

Call sum(std::size_t count = 8) {
  return {"all_reduce #2 (sum, f32, " + elements(count) + ")",
          [=](Communicator& comm) { comm.all_reduce(floats(count)); }};
}

/// A rooted operation of `count` elements per rank.
using Rooted = std::function<Call(int root, std::size_t count)>;

std::string rooted(const std::string& op, const std::string& details, int root) {
  return op + " #2 (" + details + (details.empty() ? "" : ", ") + "root " + std::to_string(root) +
         ")";
}

const std::vector<std::pair<std::string, Rooted>>& rooted_operations() {
  static const std::vector<std::pair<std::string, Rooted>> operations = {
      {"broadcast",
       [](int root, std::size_t count) {
         return Call{rooted("broadcast", "f32, " + elements(count), root),
                     [=](Communicator& comm) { comm.broadcast(floats(count), root); }};
       }},
      {"reduce",
       [](int root, std::size_t count) {
         return Call{rooted("reduce", "sum, f32, " + elements(count), root),
                     [=](Communicator& comm) {
                       std::vector<float> out(count);
                       comm.reduce(floats(count), out, root);
                     }};
       }},
      {"gather",
       [](int root, std::size_t count) {
         return Call{rooted("gather", "f32, " + elements(count), root), [=](Communicator& comm) {
                       std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
                       comm.gather(floats(count), all, root);
                     }};
       }},
      {"scatter",
       [](int root, std::size_t count) {
         return Call{rooted("scatter", "f32, " + elements(count), root), [=](Communicator& comm) {
                       const std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
                       comm.scatter(all, floats(count), root);
                     }};
       }},
      {"gather_v",
       [](int root, std::size_t count) {
         return Call{rooted("gather_v", "f32, counts vary", root), [=](Communicator& comm) {
                       const auto size = static_cast<std::size_t>(comm.size());
                       std::vector<float> all(count * size);
                       comm.gather_v(floats(count), all, std::vector<std::size_t>(size, count),
                                     root);
                     }};
       }},
      {"scatter_v",
       [](int root, std::size_t count) {
         return Call{rooted("scatter_v", "f32, counts vary", root), [=](Communicator& comm) {
                       const auto size = static_cast<std::size_t>(comm.size());
                       const std::vector<float> all(count * size);
                       comm.scatter_v(all, floats(count), std::vector<std::size_t>(size, count),
                                      root);
                     }};
       }},
      {"broadcast_object",
       [](int root, std::size_t count) {
         return Call{
             rooted("broadcast_object", "", root), [=](Communicator& comm) {
               static_cast<void>(comm.broadcast_object(Tree(std::string(count, 'x')), root));
             }};
       }},
      {"gather_objects",
       [](int root, std::size_t count) {
         return Call{rooted("gather_objects", "", root), [=](Communicator& comm) {
                       static_cast<void>(comm.gather_objects(Tree(std::string(count, 'x')), root));
                     }};
       }},
      {"scatter_objects", [](int root, std::size_t count) {
         return Call{rooted("scatter_objects", "", root), [=](Communicator& comm) {
                       const std::vector<Tree> all(static_cast<std::size_t>(comm.size()),
                                                   Tree(std::string(count, 'x')));
                       static_cast<void>(comm.scatter_objects(all, root));
                     }};
       }}};
  return operations;
}

/// An operation without a root, on `count` elements of T per rank, or in all.
template <class T>
std::vector<Call> unrooted_operations(std::size_t count) {
  const std::string type = to_string(dtype_of<T>::value);
  const auto size_of = [](const Communicator& comm) {
    return static_cast<std::size_t>(comm.size());
  };
  return {{"all_gather #2 (" + type + ", " + elements(count) + ")",
           [=](Communicator& comm) {
             std::vector<T> mine(count), all(count * size_of(comm));
             comm.all_gather(mine, all);
           }},
          {"reduce_scatter #2 (sum, " + type + ", " + elements(count) + ")",
           [=](Communicator& comm) {
             std::vector<T> all(count * size_of(comm)), mine(count);
             comm.reduce_scatter(all, mine);
           }},
          {"all_to_all #2 (" + type + ", " + elements(count) + ")",
           [=](Communicator& comm) {
             std::vector<T> in(count), out(count);
             comm.all_to_all(in, out);
           }},
          {"all_reduce #2 (sum, " + type + ", " + elements(count) + ")", [=](Communicator& comm) {
             std::vector<T> x(count);
             comm.start_all_reduce(x).wait();
           }}};
}

template <class T>
std::vector<Call> rooted_with_count(std::size_t count) {
  const std::string details = std::string(to_string(dtype_of<T>::value)) + ", " + elements(count);
  const auto size_of = [](const Communicator& comm) {
    return static_cast<std::size_t>(comm.size());
  };
  return {{rooted("broadcast", details, 0),
           [=](Communicator& comm) {
             std::vector<T> x(count);
             comm.start_broadcast(x, 0).wait();
           }},
          {rooted("reduce", "sum, " + details, 0),
           [=](Communicator& comm) {
             std::vector<T> in(count), out(count);
             comm.reduce(in, out, 0);
           }},
          {rooted("gather", details, 0),
           [=](Communicator& comm) {
             std::vector<T> mine(count), all(count * size_of(comm));
             comm.gather(mine, all, 0);
           }},
          {rooted("scatter", details, 0), [=](Communicator& comm) {
             std::vector<T> mine(count), all(count * size_of(comm));
             comm.scatter(all, mine, 0);
           }}};
}

const Call a_barrier{"barrier #2", [](Communicator& comm) { comm.barrier(); }};

const std::vector<Call>& makers_of_groups() {
  static const std::vector<Call> makers = {
      {"split #2", [](Communicator& comm) { static_cast<void>(comm.split(0)); }},
      {"group #2",
       [](Communicator& comm) {
         const std::vector<int> ranks{0, 1};
         static_cast<void>(comm.group(ranks));
       }},
      {"duplicate #2", [](Communicator& comm) { static_cast<void>(comm.duplicate()); }}};
  return makers;
}

}  // namespace

TEST_CASE("another operation") {
  check_pair(sum(), a_barrier);
  check_pair(sum(100'000), a_barrier);
}

TEST_CASE("another type, count, size or reduction") {
  const Call ints{"all_reduce #2 (sum, i32, 8 elements)", [](Communicator& comm) {
                    std::vector<int> x(8);
                    comm.all_reduce(x);
                  }};
  check_pair(sum(), ints);
  check_pair(sum(8), sum(9));
  check_pair(sum(8), sum(100'000));  // Which takes another algorithm.
  const Call max{"all_reduce #2 (max, f32, 8 elements)",
                 [](Communicator& comm) { comm.all_reduce(floats(8), ReduceOp::max); }};
  check_pair(sum(), max);
}

TEST_CASE("three ranks of which each makes another call") {
  check_told({sum(8), a_barrier, sum(9)});
  check_told({a_barrier, sum(8), sum(9), sum(10)});
}

TEST_CASE("another root, in every operation that has one, at the next call at the latest") {
  std::vector<std::function<void()>> jobs;
  const auto& operations = rooted_operations();
  for (const auto& each : operations) {
    for (const std::size_t count : {8U, 100'000U}) {
      jobs.emplace_back([&each, count] {
        CAPTURE(each.first);
        CAPTURE(count);
        const auto& operation = each.second;
        // Over connections each takes the moment after which ranks tell whom they wait for.
        check_pair(operation(0, count), operation(1, count), {count == 8 ? 2U : 3U});
      });
    }
  }
  testing::side_by_side(jobs);
}

TEST_CASE("a structured value against an array") {
  const Call object{"all_reduce_object #2 (sum)", [](Communicator& comm) {
                      static_cast<void>(comm.all_reduce_object(Tree(1.0)));
                    }};
  check_pair(sum(), object);
  const Call tree{"broadcast_object #2 (root 0)", [](Communicator& comm) {
                    static_cast<void>(comm.broadcast_object(Tree(1.0), 0));
                  }};
  const Call array{"broadcast #2 (f32, 8 elements, root 0)",
                   [](Communicator& comm) { comm.broadcast(floats(8), 0); }};
  check_pair(tree, array);
}

TEST_CASE("another count, type or operation, in every operation, also of started calls") {
  for (std::size_t i = 0; i < unrooted_operations<float>(12).size(); ++i) {
    const Call usual = unrooted_operations<float>(12)[i];
    check_both_ways(usual, unrooted_operations<float>(24)[i]);
    check_both_ways(usual, unrooted_operations<int>(12)[i]);
    check_both_ways(usual, a_barrier);
  }
  for (std::size_t i = 0; i < rooted_with_count<float>(12).size(); ++i) {
    const Call usual = rooted_with_count<float>(12)[i];
    check_both_ways(usual, rooted_with_count<float>(24)[i]);
    check_both_ways(usual, rooted_with_count<int>(12)[i]);
    check_both_ways(usual, a_barrier);
  }
}

TEST_CASE("another way to make a group, or none") {
  const auto& makers = makers_of_groups();
  for (std::size_t i = 0; i < makers.size(); ++i) {
    check_both_ways(makers[i], a_barrier);
    check_both_ways(makers[i], makers[(i + 1) % makers.size()]);
  }
}

TEST_CASE(
    "other roots in calls that each rank returns from: no rank is further ahead than a window") {
  for (const int ranks : {2, 3, 10}) {
    CAPTURE(ranks);
    std::vector<std::size_t> returned(static_cast<std::size_t>(ranks));
    const auto outcomes = testing::run_ranks(ranks, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(std::chrono::seconds(20));
      std::vector<float> mine(1), all(static_cast<std::size_t>(ranks));
      for (;; ++returned[static_cast<std::size_t>(world.rank())]) {
        comm.gather(mine, all, (world.rank() + 1) % ranks);
      }
    });
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      CAPTURE(rank);
      CAPTURE(outcomes[rank].text);
      CHECK(outcomes[rank].code == Errc::mismatch);
      CHECK(returned[rank] < RootedWindow::calls_max);
      const std::regex told(
          R"(rank \d+ (is in|made) gather (#\d+) \([^)]*root (\d+)\) \[disagreement_.*, but )"
          R"(rank \d+ (is in|made) gather (#\d+) \([^)]*root (\d+)\) \[disagreement_)");
      std::smatch parts;
      REQUIRE(std::regex_search(outcomes[rank].text, parts, told));
      CHECK(parts[2] == parts[5]);
      CHECK(parts[3] != parts[6]);
    }
  }
}

TEST_CASE("calls with a root that agree go on over many windows, also among started ones") {
  const auto outcomes = testing::run_ranks(3, [](const World& world) {
    Communicator comm(world);
    std::vector<float> x(1);
    for (int i = 0; i < 150; ++i) {
      comm.broadcast(x, i % 3);
      if (i % 10 == 0) comm.start_broadcast(x, 1).wait();
      if (i % 50 == 0) comm.all_reduce(x);
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(!outcome.code, outcome.text);
}

TEST_CASE("a window's difference is the first one, by its number here") {
  const auto made = [](std::uint64_t sequence, int root) {
    return Flight::Call{
        .what = Flight::Call::pack(2, 11, 0, root), .sequence = sequence, .count = 1};
  };
  RootedWindow one, same, other;
  for (std::uint64_t sequence = 1; sequence <= RootedWindow::calls_max; ++sequence) {
    CHECK_FALSE((sequence > 1 && one.is_full()));
    one.add(made(sequence, 0));
    same.add(made(sequence, 0));
    other.add(made(sequence, sequence > 40 ? 1 : 0));
  }
  CHECK(one.is_full());
  CHECK_FALSE(one.find_difference(same.bytes()));
  const auto differ = one.find_difference(other.bytes());
  REQUIRE(differ);
  CHECK(differ->here.sequence == 41);
  CHECK(differ->there.sequence == 41);
  CHECK(differ->here.digest != differ->there.digest);
}
