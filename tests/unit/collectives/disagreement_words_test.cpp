// Ranks that disagree are told more than their calls: shapes, counts, factors, members.
#include "tests/support/disagreement.hpp"

#include <atomic>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_outcomes;
using testing::DifferingCalls;
using testing::Outcome;
using testing::run_ranks;

namespace {

std::string place(int line) {
  return " [disagreement_words_test.cpp:" + std::to_string(line) + "]";
}

/// Two ranks make the same call, but not with the same; both are told `sides`, in either order.
void check_sides(const DifferingCalls& calls, const std::vector<std::string>& sides,
                 const std::string& end = "") {
  check_outcomes(calls, [&](const Outcome& outcome) {
    return outcome.text == sides[0] + ", but " + sides[1] + end ||
           outcome.text == sides[1] + ", but " + sides[0] + end;
  });
}

/// Checks two ranks which both say `text`, and each beside it another argument.
void check_arguments(const std::string& text, int line,
                     const std::function<void(Communicator&)>& call,
                     const std::vector<std::string>& arguments) {
  std::vector<std::string> sides;
  for (int rank = 0; rank < 2; ++rank) {
    sides.push_back("rank " + std::to_string(rank) + " is in " + text + place(line) + " with " +
                    arguments[static_cast<std::size_t>(rank)]);
  }
  check_sides({{text, call}, {text, call}}, sides);
}

}  // namespace

TEST_CASE("structured values of as many elements in another shape") {
  const int line = __LINE__ + 3;
  const auto call = [](Communicator& comm) {
    const Tensor wide(DType::f32, {2, 3}), high(DType::f32, {3, 2});
    static_cast<void>(comm.all_reduce_object(Tree(comm.rank() == 1 ? high : wide)));
  };
  const std::string text = "all_reduce_object #2 (sum)";
  check_outcomes({{text, call}, {text, call}, {text, call}}, [&](const Outcome& outcome) {
    return outcome.text == "rank 0 is in " + text + place(line) +
                               " with a tensor of f32 [2,3], but rank 1 is in " + text +
                               place(line) +
                               " with a tensor of f32 [3,2]: their values differ in structure at "
                               "its top";
  });
}

TEST_CASE("another factor, order, list of counts or of ranks: both are told") {
  const auto mine = [](const Communicator& comm, auto first, auto second) {
    return comm.rank() == 0 ? first : second;
  };
  check_arguments("all_reduce #2 (premul_sum, f32, 8 elements)", __LINE__ + 3,
                  [&](Communicator& comm) {
                    std::vector<float> x(8);
                    comm.all_reduce(x, Reduction::premul_sum(mine(comm, 2.5, 3.0)));
                  },
                  {"the factor 2.5 in the order of ranks", "the factor 3 in the order of ranks"});
  const Reduction sum;
  check_arguments("all_reduce #2 (sum, f32, 8 elements)", __LINE__ + 3,
                  [&](Communicator& comm) {
                    std::vector<float> x(8);
                    comm.all_reduce(x, mine(comm, sum, sum.canonical()));
                  },
                  {"a sum in the order of ranks", "a sum in canonical order"});
  using Counts = std::vector<std::size_t>;
  check_arguments("all_gather_v #2 (f32, counts vary)", __LINE__ + 4,
                  [&](Communicator& comm) {
                    const Counts counts = mine(comm, Counts{1, 2}, Counts{2, 1});
                    std::vector<float> one(1), all(3);
                    comm.all_gather_v(one, all, counts);
                  },
                  {"counts 1, 2", "counts 2, 1"});
  check_arguments("reduce_scatter_v #2 (sum, f32, counts vary)", __LINE__ + 4,
                  [&](Communicator& comm) {
                    const Counts counts = mine(comm, Counts{1, 2}, Counts{2, 1});
                    std::vector<float> one(1), all(3);
                    comm.reduce_scatter_v(all, one, counts);
                  },
                  {"counts 1, 2 and a sum in the order of ranks",
                   "counts 2, 1 and a sum in the order of ranks"});
  using Ranks = std::vector<int>;
  check_arguments("group #2", __LINE__ + 3,
                  [&](Communicator& comm) {
                    const Ranks ranks = mine(comm, Ranks{0, 1}, Ranks{1, 0});
                    static_cast<void>(comm.group(ranks));
                  },
                  {"ranks 0, 1", "ranks 1, 0"});
}

TEST_CASE("counts of which only two ranks know: what was sent, and what was expected") {
  using Counts = std::vector<std::size_t>;
  const auto check = [](const std::string& text, int line, int from, int to,
                        const std::function<void(Communicator&)>& call) {
    const auto side = [&](int rank) {
      return "rank " + std::to_string(rank) + " is in " + text + place(line);
    };
    check_outcomes({{text, call}, {text, call}}, [&](const Outcome& outcome) {
      return outcome.text == side(to) + ", but " + side(from) +
                                 " and sent 3 elements in place of 2: their counts differ";
    });
  };
  check("scatter_v #2 (f32, counts vary, root 0)", __LINE__ + 3, 0, 1, [](Communicator& comm) {
    const std::vector<float> all(5);
    std::vector<float> mine(2);
    comm.scatter_v(all, mine, Counts{2, 3}, 0);
  });
  check("gather_v #2 (f32, counts vary, root 0)", __LINE__ + 3, 1, 0, [](Communicator& comm) {
    const std::vector<float> mine(comm.rank() == 0 ? 1 : 3);
    std::vector<float> all(3);
    comm.gather_v(mine, all, Counts{1, 2}, 0);
  });
}

TEST_CASE("a group's call and its members are named as such") {
  std::vector<Outcome> outcomes;
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::atomic<int> all_reduce_line{0}, barrier_line{0};
    outcomes = run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(20s);
      auto part = comm.split(comm.rank() == 0 ? 0 : 1, -comm.rank());
      if (comm.rank() == 0) return;
      std::vector<float> x(8);
      if (part->rank() == 0) {
        all_reduce_line = __LINE__ + 1;
        part->all_reduce(x);
      } else {
        barrier_line = __LINE__ + 1;
        part->barrier();
      }
    });
    const std::string sides[] = {
        "rank 0 (rank 2 of the world) is in all_reduce #1 (sum, f32, 8 elements)" +
            place(all_reduce_line),
        "rank 1 is in barrier #1" + place(barrier_line)};
    const auto says = [&](const Outcome& outcome) {
      return outcome.text == sides[0] + ", but " + sides[1] + " of 'world/split1.1'" ||
             outcome.text == sides[1] + ", but " + sides[0] + " of 'world/split1.1'";
    };
    CHECK(outcomes[0].ok());
    for (const std::size_t rank : {std::size_t{1}, std::size_t{2}}) {
      CHECK(outcomes[rank].code == Errc::mismatch);
    }
    if (says(outcomes[1]) && says(outcomes[2])) return;
  }
  FAIL_CHECK(outcomes[1].text << "\n" << outcomes[2].text);
}
