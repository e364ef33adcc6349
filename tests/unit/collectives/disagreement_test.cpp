// Ranks that make different calls: every rank is told both, with who made them and where.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Outcome;
using testing::run_ranks;

namespace {

using Body = std::function<void(Communicator&)>;

/// A call, and what it is called: "all_reduce #2 (sum, f32, 8 elements)".
struct Call {
  std::string text;
  Body make;
};

/// Each rank makes its own call, then as many barriers as it takes to hear of the others.
std::vector<Outcome> disagree(const std::vector<Call>& calls) {
  return run_ranks(static_cast<int>(calls.size()), [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    comm.barrier();
    calls[static_cast<std::size_t>(comm.rank())].make(comm);
    comm.barrier();
    comm.barrier();
  });
}

/// That a rank which made such a call is named with it and its place in the program.
bool tells(const Outcome& outcome, const std::vector<Call>& calls, const std::string& text) {
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    if (calls[rank].text != text) continue;
    for (const char* verb : {" is in ", " made "}) {
      const std::string told = "rank " + std::to_string(rank) + verb + text;
      if (outcome.mentions(told + " [disagreement_test.cpp:")) return true;
    }
  }
  return false;
}

/// Of how many different calls a rank is told, with who made them and where.
int count_told(const Outcome& outcome, const std::vector<Call>& calls) {
  int told = 0;
  std::vector<std::string> seen;
  for (const Call& call : calls) {
    if (std::find(seen.begin(), seen.end(), call.text) != seen.end()) continue;
    seen.push_back(call.text);
    told += tells(outcome, calls, call.text) ? 1 : 0;
  }
  return told;
}

/// Every call that the text says a rank is in, or made, is one of that rank's.
void check_true(const std::string& text, const std::vector<Call>& calls) {
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    for (const std::string verb : {" is in ", " made "}) {
      const std::string begin = "rank " + std::to_string(rank) + verb;
      for (auto at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1)) {
        const std::string_view said = std::string_view(text).substr(at + begin.size());
        CAPTURE(said);
        CHECK((said.starts_with(calls[rank].text) || said.starts_with("barrier #3") ||
               said.starts_with("barrier #4")));
      }
    }
  }
}

/// Each rank is told both calls; of several that differ from the others', one of them.
void check_told(const std::vector<Call>& calls) {
  std::vector<Outcome> outcomes;
  // What another rank has called, where its news are not enough, and where, is told by that rank,
  // which has half a second for it. It may not get that where other processes keep the machine
  // busy: then less is told, and nothing that is wrong.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto begin = Clock::now();
    outcomes = disagree(calls);
    // Found by comparing, not by waiting for the timeout of 20 s.
    CHECK(Clock::now() - begin < 10s);
    for (const auto& outcome : outcomes) {
      CHECK(outcome.code == Errc::mismatch);
      check_true(outcome.text, calls);
    }
    if (std::all_of(outcomes.begin(), outcomes.end(),
                    [&](const Outcome& outcome) { return count_told(outcome, calls) == 2; })) {
      break;
    }
  }
  for (std::size_t rank = 0; rank < calls.size(); ++rank) {
    CAPTURE(rank);
    CAPTURE(outcomes[rank].text);
    CHECK(count_told(outcomes[rank], calls) == 2);
  }
}

/// In worlds of several sizes, one rank apart from the others in each direction.
void check_pair(const Call& one, const Call& other,
                const std::vector<std::size_t>& sizes = {2, 3, 5}) {
  for (const std::size_t size : sizes) {
    for (const bool turned : {false, true}) {
      for (const std::size_t apart : {std::size_t{0}, size - 1}) {
        std::vector<Call> calls(size, turned ? other : one);
        calls[apart] = turned ? one : other;
        CAPTURE(size);
        CAPTURE(apart);
        CAPTURE(calls[apart].text);
        check_told(calls);
      }
    }
  }
}

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
      {"broadcast of a tree",
       [](int root, std::size_t count) {
         return Call{rooted("broadcast of a tree", "", root), [=](Communicator& comm) {
                       comm.broadcast(Tree(std::string(count, 'x')), root);
                     }};
       }},
      {"gather of a tree",
       [](int root, std::size_t count) {
         return Call{rooted("gather of a tree", "", root), [=](Communicator& comm) {
                       comm.gather_objects(Tree(std::string(count, 'x')), root);
                     }};
       }},
      {"scatter of a tree", [](int root, std::size_t count) {
         return Call{rooted("scatter of a tree", "", root), [=](Communicator& comm) {
                       const std::vector<Tree> all(static_cast<std::size_t>(comm.size()),
                                                   Tree(std::string(count, 'x')));
                       comm.scatter_objects(all, root);
                     }};
       }}};
  return operations;
}

}  // namespace

TEST_CASE("another operation") {
  const Call barrier{"barrier #2", [](Communicator& comm) { comm.barrier(); }};
  check_pair(sum(), barrier);
  check_pair(sum(100'000), barrier);
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
  const Call barrier{"barrier #2", [](Communicator& comm) { comm.barrier(); }};
  check_told({sum(8), barrier, sum(9)});
  check_told({barrier, sum(8), sum(9), sum(10)});
}

TEST_CASE("another root, in every operation that has one, at the next call at the latest") {
  for (const auto& [name, operation] : rooted_operations()) {
    for (const std::size_t count : {8U, 100'000U}) {
      CAPTURE(name);
      CAPTURE(count);
      // Over connections each takes the moment after which ranks tell whom they wait for.
      check_pair(operation(0, count), operation(1, count), {count == 8 ? 2U : 3U});
    }
  }
}

TEST_CASE("a structured value against an array") {
  const Call object{"all_reduce of a tree #2 (sum)",
                    [](Communicator& comm) { comm.all_reduce(Tree(1.0)); }};
  check_pair(sum(), object);
  const Call tree{"broadcast of a tree #2 (root 0)",
                  [](Communicator& comm) { comm.broadcast(Tree(1.0), 0); }};
  const Call array{"broadcast #2 (f32, 8 elements, root 0)",
                   [](Communicator& comm) { comm.broadcast(floats(8), 0); }};
  check_pair(tree, array);
}

TEST_CASE("structured values of as many elements in another shape") {
  const auto shaped = [](std::vector<std::int64_t> shape) {
    return Tree(Tensor(DType::f32, std::move(shape)));
  };
  for (const auto& outcome : run_ranks(3, [&](const World& world) {
         Communicator comm(world);
         comm.set_timeout(20s);
         comm.all_reduce(comm.rank() == 1 ? shaped({3, 2}) : shaped({2, 3}));
       })) {
    CAPTURE(outcome.text);
    CHECK(outcome.code == Errc::mismatch);
    CHECK(outcome.mentions("[2,3]"));
    CHECK(outcome.mentions("[3,2]"));
    CHECK(outcome.mentions("rank 1"));
  }
}

TEST_CASE("another factor, or other counts: what differs is another argument") {
  const auto scaled = [](double factor) {
    return
        [factor](Communicator& comm) { comm.all_reduce(floats(8), Reduction::premul_sum(factor)); };
  };
  const auto parts = [](std::vector<std::size_t> counts) {
    return [counts](Communicator& comm) {
      std::vector<float> mine(counts[static_cast<std::size_t>(comm.rank())]), all(3);
      comm.all_gather_v(mine, all, counts);
    };
  };
  const std::pair<std::string, std::vector<Body>> cases[] = {
      {"all_reduce #2 (premul_sum, f32, 8 elements) [disagreement_test.cpp:",
       {scaled(2), scaled(3)}},
      {"all_gather_v #2 (f32, counts vary) [disagreement_test.cpp:",
       {parts({1, 2}), parts({2, 1})}}};
  for (const auto& [text, bodies] : cases) {
    for (const auto& outcome : disagree({{text, bodies[0]}, {text, bodies[1]}})) {
      CAPTURE(outcome.text);
      CHECK(outcome.code == Errc::mismatch);
      CHECK(outcome.mentions("rank 0 is in " + text));
      CHECK(outcome.mentions("rank 1 is in " + text));
      CHECK(outcome.mentions("], with another argument"));
    }
  }
}

TEST_CASE("a group's call and its members are named as such") {
  for (const auto& outcome : run_ranks(3, [&](const World& world) {
         Communicator comm(world);
         comm.set_timeout(20s);
         auto part = comm.split(comm.rank() == 0 ? 0 : 1, -comm.rank());
         if (comm.rank() == 0) return;
         if (part->rank() == 0) part->all_reduce(floats(8));
         if (part->rank() == 1) part->barrier();
       })) {
    CAPTURE(outcome.text);
    if (outcome.ok()) continue;
    CHECK(outcome.code == Errc::mismatch);
    const bool seen_from_1 = outcome.mentions("rank 0 (rank 2 of the world) is in all_reduce #1");
    const bool seen_from_0 = outcome.mentions("rank 1 (rank 1 of the world) is in barrier #1") ||
                             outcome.mentions("rank 1 is in barrier #1");
    CHECK((seen_from_0 || seen_from_1));
    CHECK(outcome.mentions(" of 'world/split"));
  }
}
