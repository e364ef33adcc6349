// Every collective, and every v-form, with every argument wrong: a sentence that names the call and
// the argument on the rank that gave it, the same sentence on the others, and nobody waits for
// long.
#include "tests/support/ranks.hpp"
#include "tests/support/side_by_side.hpp"

#include <dlaunch/dlaunch.hpp>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::run_ranks;

namespace {

constexpr int ranks = 3;
constexpr std::size_t each = 2, whole = each * ranks;

/// A rank's arguments of a call; right, unless a fault has been put in.
struct Given {
  explicit Given(int rank) : me(static_cast<std::size_t>(rank)) {}

  std::size_t me;
  std::vector<float> parts = std::vector<float>(whole, 1), more = std::vector<float>(whole);
  std::vector<std::size_t> counts = std::vector<std::size_t>(ranks, each), out_counts = counts;
  int root = 1;
  Options options{};
  TensorView small{parts.data(), each, DType::f32}, large{more.data(), whole, DType::f32};
  Reduction reduction = ReduceOp::sum;
};

/// A collective: `small` has a part of one rank, `large` one of each.
struct Collective {
  std::string name;
  bool has_root, has_small, has_large, reduces, has_counts;
  const char* small_name;  ///< As a sentence calls them.
  const char* large_name;
  std::function<void(Communicator&, Given&)> call;
};

TensorView whole_of(std::vector<float>& values) { return {values.data(), whole, DType::f32}; }

const std::vector<Collective> collectives = {
    {"broadcast", true, true, false, false, false, "inout", "",
     [](Communicator& c, Given& g) { c.broadcast(g.small, g.root, g.options); }},
    {"reduce", true, true, false, true, false, "in", "",
     [](Communicator& c, Given& g) {
       std::vector<float> out(each);
       c.reduce(g.small, out, g.root, g.reduction, g.options);
     }},
    {"all_reduce", false, true, false, true, false, "inout", "",
     [](Communicator& c, Given& g) { c.all_reduce(g.small, g.reduction, g.options); }},
    {"all_reduce", false, true, false, true, false, "in", "",
     [](Communicator& c, Given& g) {
       std::vector<float> out(each);
       const TensorView alike{out.data(), g.small.count, g.small.dtype};
       c.all_reduce_into(g.small, alike, g.reduction, g.options);
     }},
    {"all_gather", false, true, true, false, false, "in", "out",
     [](Communicator& c, Given& g) { c.all_gather(g.small, g.large, g.options); }},
    {"all_gather_v", false, true, true, false, true, "in", "out",
     [](Communicator& c, Given& g) { c.all_gather_v(g.small, g.large, g.counts, g.options); }},
    {"gather", true, true, true, false, false, "in", "out",
     [](Communicator& c, Given& g) { c.gather(g.small, g.large, g.root, g.options); }},
    {"gather_v", true, true, true, false, true, "in", "out",
     [](Communicator& c, Given& g) { c.gather_v(g.small, g.large, g.counts, g.root, g.options); }},
    {"scatter", true, true, true, false, false, "out", "in",
     [](Communicator& c, Given& g) { c.scatter(g.large, g.small, g.root, g.options); }},
    {"scatter_v", true, true, true, false, true, "out", "in",
     [](Communicator& c, Given& g) { c.scatter_v(g.large, g.small, g.counts, g.root, g.options); }},
    {"reduce_scatter", false, true, true, true, false, "out", "in",
     [](Communicator& c, Given& g) { c.reduce_scatter(g.large, g.small, g.reduction, g.options); }},
    {"reduce_scatter_v", false, true, true, true, true, "out", "in",
     [](Communicator& c, Given& g) {
       c.reduce_scatter_v(g.large, g.small, g.counts, g.reduction, g.options);
     }},
    {"all_to_all", false, false, true, false, false, "", "out",
     [](Communicator& c, Given& g) { c.all_to_all(whole_of(g.parts), g.large, g.options); }},
    {"all_to_all_v", false, false, true, false, true, "", "out",
     [](Communicator& c, Given& g) {
       c.all_to_all_v(whole_of(g.parts), g.counts, g.large, g.out_counts, g.options);
     }},
    {"barrier", false, false, false, false, false, "", "",
     [](Communicator& c, Given& g) { c.barrier(g.options); }},
};

/// Something wrong, and what the sentence says of it.
struct Mistake {
  std::string name;
  std::function<bool(const Collective&)> may;
  std::function<void(Given&)> put_in;
  std::function<std::string(const Collective&)> sentence;
};

std::string quoted(const char* name) { return "'" + std::string(name) + "'"; }

const std::vector<Mistake> faults = {
    {"a root that there is not", [](const Collective& c) { return c.has_root; },
     [](Given& g) { g.root = ranks; },
     [](const Collective&) { return "there is no rank 3 to be the root"; }},
    {"a negative root", [](const Collective& c) { return c.has_root; },
     [](Given& g) { g.root = -1; },
     [](const Collective&) { return "there is no rank -1 to be the root"; }},
    {"a null pointer", [](const Collective& c) { return c.has_small; },
     [](Given& g) { g.small.data = nullptr; },
     [](const Collective& c) {
       return quoted(c.small_name) + ": a null pointer was given for 2 elements";
     }},
    {"no dtype", [](const Collective& c) { return c.has_small; },
     [](Given& g) { g.small.dtype = static_cast<DType>(99); },
     [](const Collective& c) { return quoted(c.small_name) + ": the number 99 is no dtype"; }},
    {"more than memory holds", [](const Collective& c) { return c.has_small && !c.has_counts; },
     [](Given& g) { g.small.count = ~std::size_t{0} / 4 + 1; },
     [](const Collective& c) {
       return quoted(c.small_name) + ": 4611686018427387904 elements are more than memory may hold";
     }},
    {"further apart than memory reaches", [](const Collective& c) { return c.has_small; },
     [](Given& g) { g.small.stride = std::numeric_limits<std::ptrdiff_t>::min(); },
     [](const Collective& c) {
       return quoted(c.small_name) +
              ": 2 elements with a stride of -9223372036854775808 reach "
              "further than memory may";
     }},
    {"no place", [](const Collective& c) { return c.has_small; },
     [](Given& g) { g.small.place.cuda_device = -2; },
     [](const Collective& c) { return quoted(c.small_name) + ": a view's place is the host's"; }},
    {"a null pointer for all", [](const Collective& c) { return c.has_large; },
     [](Given& g) { g.large.data = nullptr; },
     [](const Collective& c) {
       return quoted(c.large_name) + ": a null pointer was given for 6 elements";
     }},
    {"another dtype", [](const Collective& c) { return c.has_large; },
     [](Given& g) { g.large.dtype = DType::i32; },
     [](const Collective& c) { return quoted(c.large_name) + ": it has i32 elements, but "; }},
    {"a buffer too small", [](const Collective& c) { return c.has_large; },
     [](Given& g) { g.large.count = whole - 1; },
     [](const Collective& c) {
       return quoted(c.large_name) + ": a buffer of 6 elements is needed, one of 5 was given";
     }},
    {"buffers that overlap", [](const Collective& c) { return c.has_large; },
     [](Given& g) {
       // Neither apart, nor this rank's part.
       g.large.data = g.parts.data();
       g.small.data = g.parts.data() + (each * g.me + 1) % (whole - 1);
     },
     [](const Collective&) { return "'in' and 'out' overlap"; }},
    {"too few counts", [](const Collective& c) { return c.has_counts && c.has_small; },
     [](Given& g) { g.counts.pop_back(); },
     [](const Collective&) { return "2 counts were given for 3 ranks"; }},
    {"another count than the buffer's", [](const Collective& c) { return c.has_counts; },
     [](Given& g) {
       g.counts[g.me] = 1;
       g.small.count = 2;
     },
     [](const Collective& c) {
       return c.has_small ? quoted(c.small_name) + " has 2 elements, but this rank's count is 1"
                          : std::string("'in' has 6 elements, in_counts say 5");
     }},
    {"counts whose sum is beyond numbers", [](const Collective& c) { return c.has_counts; },
     [](Given& g) {
       g.counts[(g.me + 1) % ranks] = ~std::size_t{0};
       g.counts[(g.me + 2) % ranks] = 3;
     },
     [](const Collective& c) {
       return c.has_small ? std::string("a buffer of more elements than memory may hold is needed")
                          : std::string("'in' has 6 elements, in_counts say");
     }},
    {"a mean of nothing that has one", [](const Collective& c) { return c.reduces; },
     [](Given& g) {
       g.small.dtype = g.large.dtype = DType::c64;
       g.small.count = 1;
       g.large.count = ranks;
       g.counts.assign(ranks, 1);
       g.reduction = ReduceOp::max;
     },
     [](const Collective&) { return "max of c64 elements makes no sense"; }},
    {"a negative timeout", [](const Collective&) { return true; },
     [](Given& g) { g.options.timeout = -1s; },
     [](const Collective&) { return "a timeout is not negative"; }},
};

/// Only the root looks at what it alone has.
bool sees(const Collective& collective, const Mistake& fault, int rank) {
  const bool at_root = collective.has_root && collective.has_large;
  const bool of_all = fault.sentence(collective).find(quoted(collective.large_name)) == 0 ||
                      fault.name == "buffers that overlap" ||
                      fault.name.find("count") != fault.name.npos;
  return !at_root || !of_all || rank == 1;
}

/// Rank `wrong` makes the mistake; that rank and all others are told.
void check_told(const Collective& collective, const Mistake& fault, int wrong) {
  const std::string what =
      collective.name + " with " + fault.name + " on rank " + std::to_string(wrong) + ": ";
  const auto begin = Clock::now();
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(30s);
    comm.barrier();
    Given given(comm.rank());
    if (comm.rank() == wrong) fault.put_in(given);
    collective.call(comm, given);
    // A root, and whom it served, may have returned; their next calls tell them.
    comm.barrier();
    comm.barrier();
  });
  // Found by comparing, not by waiting for the timeout.
  CHECK(Clock::now() - begin < 20s);
  const std::string sentence = fault.sentence(collective);
  const auto& mine = outcomes[static_cast<std::size_t>(wrong)];
  CHECK_MESSAGE(mine.code == Errc::misuse, what << mine.text);
  CHECK_MESSAGE(mine.mentions(sentence), what << mine.text);
  CHECK_MESSAGE(mine.mentions(collective.name + " #2 on rank "), what << mine.text);
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(!outcome.ok(), what);
    CHECK_MESSAGE(outcome.mentions(sentence), what << outcome.text);
  }
}

}  // namespace

TEST_CASE("every wrong argument of every collective is told to the rank that gave it, and to all") {
  std::vector<std::function<void()>> jobs;
  for (const Collective& collective : collectives) {
    for (const Mistake& fault : faults) {
      for (int wrong = 0; fault.may(collective) && wrong < ranks; ++wrong) {
        if (!sees(collective, fault, wrong)) continue;
        jobs.emplace_back([&collective, &fault, wrong] { check_told(collective, fault, wrong); });
      }
    }
  }
  testing::side_by_side(jobs);
}

TEST_CASE("the same wrong argument on all ranks leaves every collective usable") {
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(30s);
    for (const Collective& collective : collectives) {
      for (const Mistake& fault : faults) {
        if (!fault.may(collective) || !sees(collective, fault, comm.rank())) continue;
        if (!sees(collective, fault, 0)) continue;  // The others would go on alone.
        Given given(comm.rank());
        fault.put_in(given);
        try {
          collective.call(comm, given);
          throw std::runtime_error(collective.name + " took " + fault.name);
        } catch (const Error& error) {
          if (error.errc() != Errc::misuse) throw;
        }
      }
      Given given(comm.rank());
      collective.call(comm, given);
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("what may be the same memory is, and gives the same") {
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    const auto me = static_cast<std::size_t>(comm.rank());
    const auto require = [](bool holds, const char* what) {
      if (!holds) throw std::runtime_error(what);
    };
    std::vector<int> all(whole, 10 + comm.rank());
    const TensorView mine{all.data() + me * each, each, DType::i32};
    const std::vector<int> gathered{10, 10, 11, 11, 12, 12};
    comm.all_gather(mine, all);
    require(all == gathered, "all_gather");
    comm.all_gather_v(mine, all, std::vector<std::size_t>(ranks, each));
    require(all == gathered, "all_gather_v");
    comm.gather(mine, all, 1);
    require(all == gathered, "gather");
    comm.scatter(all, mine, 2);
    require(all == gathered, "scatter");
    comm.reduce_scatter(all, mine);
    for (std::size_t i = 0; i < each; ++i) {
      require(all[me * each + i] == 3 * (10 + comm.rank()), "reduce_scatter");
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("after an error every collective gives that error again") {
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(30s);
    comm.abort();
    for (const Collective& collective : collectives) {
      Given given(comm.rank());
      try {
        collective.call(comm, given);
        throw std::runtime_error(collective.name + " went on");
      } catch (const Error& error) {
        if (error.errc() != Errc::aborted && error.errc() != Errc::peer_lost) throw;
      }
    }
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

namespace {

/// Views of a list on a rank, right unless something has been made wrong.
struct List {
  explicit List(int rank) : me(static_cast<std::size_t>(rank)) {
    // A view that begins an element later still ends in their memory.
    part.reserve(each + 1);
    for (auto& values : kept) {
      values.reserve(each + 1);
      views.emplace_back(values);
    }
  }
  std::size_t me;
  std::vector<float> part = std::vector<float>(each);
  std::vector<std::vector<float>> kept =
      std::vector<std::vector<float>>(ranks, std::vector<float>(each));
  std::vector<TensorView> views;
};
struct ListCall {
  std::string name;
  const char* list;
  const char* part;
  bool has_root;
  std::function<void(Communicator&, List&)> call;
};
const std::vector<ListCall> list_calls = {
    {"all_gather_v", "out", "in", false,
     [](Communicator& c, List& g) { c.all_gather_list(g.part, g.views); }},
    {"gather_v", "out", "in", true,
     [](Communicator& c, List& g) { c.gather_list(g.part, g.views, 1); }},
    {"scatter_v", "in", "out", true,
     [](Communicator& c, List& g) {
       c.scatter_list(std::vector<ConstTensorView>(g.views.begin(), g.views.end()), g.part, 1);
     }},
    {"reduce_scatter_v", "in", "out", false,
     [](Communicator& c, List& g) {
       c.start_reduce_scatter_list(std::vector<ConstTensorView>(g.views.begin(), g.views.end()),
                                   g.part)
           .wait();
     }},
};

/// The sentence, in which L is the list and P the other buffer.
struct ListMistake {
  const char* sentence;
  std::function<void(List&)> put_in;
  bool of_written = false;  ///< Views that are read may do so.
};
const std::vector<ListMistake> list_mistakes = {
    {"'L' has 2 views for 3 ranks", [](List& g) { g.views.pop_back(); }},
    {"'L' has 0 views for 3 ranks", [](List& g) { g.views.clear(); }},
    {"'L[2]': a null pointer was given for 2 elements", [](List& g) { g.views[2].data = nullptr; }},
    {"'L[0]': it has i32 elements, but 'P' has f32",
     [](List& g) { g.views[0].dtype = DType::i32; }},
    {"'P' has 2 elements, but 'L[1]', this rank's part, has 1",
     [](List& g) { g.views[g.me].count = 1; }},
    {"'P' and 'L[2]' overlap", [](List& g) { g.views[2].data = g.part.data() + 1; }},
    {"'L[0]' and 'L[2]' overlap", [](List& g) { g.views[2].data = g.kept[0].data() + 1; }, true},
};

}  // namespace

TEST_CASE("what is wrong with a list of views is told to the rank that gave it, and to all") {
  constexpr int wrong = 1;
  for (const ListCall& call : list_calls) {
    for (const ListMistake& mistake : list_mistakes) {
      if (mistake.of_written && std::string(call.list) == "in") continue;
      std::string sentence = mistake.sentence;
      for (std::size_t at = 0; (at = sentence.find_first_of("LP", at)) != sentence.npos; ++at) {
        sentence.replace(at, 1, sentence[at] == 'L' ? call.list : call.part);
      }
      const auto outcomes = run_ranks(ranks, [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(30s);
        comm.barrier();
        List given(comm.rank());
        if (comm.rank() == wrong) mistake.put_in(given);
        call.call(comm, given);
        comm.barrier();
        comm.barrier();
      });
      const std::string what = call.name + ", " + sentence + ": ";
      CHECK_MESSAGE(outcomes[wrong].code == Errc::misuse, what << outcomes[wrong].text);
      CHECK_MESSAGE(outcomes[wrong].mentions(call.name + " #2 on rank 1: "), outcomes[wrong].text);
      for (const auto& outcome : outcomes) {
        CHECK_MESSAGE(!outcome.ok(), what);
        CHECK_MESSAGE(outcome.mentions(sentence), what << outcome.text);
      }
    }
  }
}

TEST_CASE("lists whose views differ in length over the ranks are told apart") {
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    List given(comm.rank());
    if (comm.rank() == 2) given.views[0].count = 1;
    comm.all_gather_list(given.part, given.views);
  });
  for (const auto& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
    CHECK_MESSAGE(outcome.mentions("all_gather_v #1"), outcome.text);
  }
}

TEST_CASE("a rank's own view may be its part, and views that are read may overlap") {
  const auto outcomes = run_ranks(ranks, [&](const World& world) {
    Communicator comm(world);
    const auto me = static_cast<std::size_t>(comm.rank());
    const auto value = static_cast<float>(1 + comm.rank());
    List given(comm.rank());
    given.kept[me].assign(each, value);
    comm.all_gather_list(given.views[me], given.views);
    comm.gather_list(given.views[me], given.views, 1);
    for (std::size_t rank = 0; rank < given.kept.size(); ++rank) {
      if (given.kept[rank] != std::vector<float>(each, static_cast<float>(1 + rank))) {
        throw std::runtime_error("all_gather_list in place");
      }
    }
    std::vector<float> one(each, value);
    comm.reduce_scatter_list(std::vector<ConstTensorView>(ranks, one), given.part);
    if (given.part != std::vector<float>(each, 6)) throw std::runtime_error("one view for all");
    comm.scatter_list(std::vector<ConstTensorView>(ranks, one), given.part, 1);
    if (given.part != std::vector<float>(each, 2)) throw std::runtime_error("one view for all");
  });
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}
