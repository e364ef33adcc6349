// Joins that nest, end early, fail, or meet what they must not meet.
#include "tests/support/linear_task.hpp"
#include "tests/support/outcomes.hpp"

#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::Linear;
using testing::Outcome;
using testing::reduced_step;
using testing::run_ranks;

namespace {

constexpr float rate = 0.01F;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

void check_models(const std::vector<Linear>& models, const std::vector<int>& counts) {
  const Linear wanted = testing::reference_of(counts, rate, true);
  for (const Linear& model : models) {
    CHECK(std::abs(model.w - wanted.w) < 1e-6F);
    CHECK(std::abs(model.b - wanted.b) < 1e-6F);
    CHECK(std::bit_cast<std::uint32_t>(model.w) == std::bit_cast<std::uint32_t>(models[0].w));
    CHECK(std::bit_cast<std::uint32_t>(model.b) == std::bit_cast<std::uint32_t>(models[0].b));
  }
}

std::size_t index_of(const Communicator& comm) { return static_cast<std::size_t>(comm.rank()); }

/// Steps of this rank's under an open join.
void steps(GradientReducer& reducer, Linear& model, int count, int from = 0) {
  for (int step = from; step < from + count; ++step) {
    reduced_step(reducer, model, Linear::input(step, reducer.communicator().rank()));
    model.descend(rate);
  }
}

/// "rank 0 is in join's shadow all_reduce #3 (who is here, sum, u64, 11 elements)
/// [join_test.cpp:42]": a rank, its call, and the program's line it belongs to.
std::string side(int rank, const std::string& call, int line) {
  return "rank " + std::to_string(rank) + " is in " + call +
         " [join_test.cpp:" + std::to_string(line) + "]";
}

/// The sentence that a call throws.
std::string thrown_by(const std::function<void()>& call, Errc code) {
  try {
    call();
  } catch (const Error& error) {
    return error.errc() == code ? error.what() : std::string("another code: ") + error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("early termination: exact sentences, and all ranks go on together") {
  for (const int inputs : {0, 3}) {
    std::vector<std::string> sentences(3);
    std::vector<Linear> models(3);
    check_all(run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      Linear& model = models[index_of(comm)];
      GradientReducer reducer(comm, model.parameters());
      try {
        Join join(reducer, {.throw_on_early_termination = true});
        steps(reducer, model, inputs + (comm.rank() == 1 ? 0 : 2));
        join.finish();
      } catch (const EarlyTermination& end) {
        sentences[index_of(comm)] = end.what();
      }
      require(!reducer.is_joined(), "the join is over");
      comm.barrier();
      // And once more, with inputs for all.
      Join join(reducer, {.throw_on_early_termination = true});
      steps(reducer, model, 2, inputs);
      join.finish();
      comm.barrier();
    }));
    const std::string told =
        "Detected at least one rank that exhausted inputs. Throwing across all ranks.";
    CHECK(sentences == std::vector<std::string>{told, "Rank 1 exhausted all inputs.", told});
    check_models(models, {inputs + 2, inputs + 2, inputs + 2});
  }
}

TEST_CASE("a barrier in the loop: both ranks name the shadow and the barrier") {
  for (const int inputs : {0, 1, 2}) {
    std::atomic<int> barrier_line{0}, finish_line{0};
    const auto outcomes = run_ranks(2, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      Linear model;
      GradientReducer reducer(comm, model.parameters());
      Join join(reducer);
      for (int step = 0; step < inputs + comm.rank(); ++step) {
        reduced_step(reducer, model, 1);
        barrier_line = __LINE__ + 1;
        comm.barrier();
      }
      if (comm.rank() == 0) finish_line = __LINE__ + 1;
      join.finish();
    });
    // Three to make the reducer, four in each step, three of a shadow's.
    const std::string number = std::to_string(3 + 4 * inputs + 3 + 1);
    for (const Outcome& outcome : outcomes) {
      CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
      CHECK_MESSAGE(
          outcome.mentions(side(
              0, "join's shadow all_reduce #" + number + " (who is here, sum, u64, 11 elements)",
              finish_line)),
          outcome.text);
      CHECK_MESSAGE(outcome.mentions(side(1, "barrier #" + number, barrier_line)), outcome.text);
    }
  }
}

TEST_CASE("the program's own all_reduce never meets join's, even of the same type and count") {
  std::atomic<int> all_reduce_line{0}, finish_line{0};
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Linear model;
    GradientReducer reducer(comm, model.parameters());
    Join join(reducer);
    if (comm.rank() == 1) {
      std::vector<std::uint64_t> same(11);
      all_reduce_line = __LINE__ + 1;
      comm.all_reduce(same);
    }
    if (comm.rank() == 0) finish_line = __LINE__ + 1;
    join.finish();
  });
  for (const Outcome& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
    CHECK_MESSAGE(
        outcome.mentions(side(0, "join's shadow all_reduce #4 (who is here, sum, u64, 11 elements)",
                              finish_line)),
        outcome.text);
    CHECK_MESSAGE(
        outcome.mentions(side(1, "all_reduce #4 (sum, u64, 11 elements)", all_reduce_line)),
        outcome.text);
  }
}

TEST_CASE("without a join, a barrier against gradients: both are named") {
  std::atomic<int> barrier_line{0}, ready_line{0};
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Linear model;
    GradientReducer reducer(comm, model.parameters());
    for (int step = 0; step < 2 + comm.rank(); ++step) {
      reducer.begin();
      reducer.ready(1);
      ready_line = __LINE__ + 1;
      reducer.ready(0);
      reducer.finish();
    }
    barrier_line = __LINE__ + 1;
    comm.barrier();
  });
  for (const Outcome& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
    CHECK_MESSAGE(outcome.mentions(side(0, "barrier #6", barrier_line)), outcome.text);
    CHECK_MESSAGE(
        outcome.mentions(
            side(1, "the reducer's all_reduce #6 (gradients of bucket 0, sum, f32, 2 elements)",
                 ready_line)),
        outcome.text);
  }
}

TEST_CASE("an exception on one rank reaches those that work and those that shadow") {
  for (const bool by_guard : {true, false}) {
    std::vector<std::shared_ptr<testing::FakeMembership>> links;
    for (int rank = 0; rank < 3; ++rank) {
      links.push_back(std::make_shared<testing::FakeMembership>());
    }
    const auto program = [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      Linear model;
      GradientReducer reducer(comm, model.parameters());
      const auto loop = [&] {
        for (int step = 0; step < 1 + 4 * comm.rank(); ++step) {
          if (comm.rank() == 1 && step == 3) throw std::runtime_error("the disk is full");
          reduced_step(reducer, model, 1);
        }
      };
      if (by_guard) {
        Join join(reducer);
        loop();
        join.finish();
      } else {
        Joinable* const joinables[] = {&reducer};
        Join::over(joinables, loop);
      }
    };
    const auto outcomes = run_ranks(3, program, links);
    CHECK(outcomes[1].text == "the disk is full");
    // It says that it is its own fault, and the others say whose it is.
    REQUIRE(links[1]->reports().size() == 1);
    CHECK(links[1]->reports()[0].second.fault == Fault::own);
    for (const std::size_t rank : {std::size_t{0}, std::size_t{2}}) {
      const Outcome& outcome = outcomes[rank];
      CHECK_MESSAGE(outcome.code == Errc::aborted, outcome.text);
      CHECK_MESSAGE(
          outcome.mentions(by_guard ? "rank 1 left a join without finish()"
                                    : "rank 1 left a join by an exception: the disk is full"),
          outcome.text);
      REQUIRE(links[rank]->reports().size() == 1);
      CHECK(links[rank]->reports()[0].second.fault == Fault::gave_up);
      CHECK(links[rank]->reports()[0].second.ranks == std::vector<int>{1});
    }
  }
}

TEST_CASE("a joint loss of two models, joined in any order and nesting") {
  enum class Way { listed, nested };
  const std::vector<int> counts{3, 1, 4};
  for (const Way way : {Way::listed, Way::nested}) {
    std::vector<Linear> first(3), second(3);
    check_all(run_ranks(3, [&](const World& world) {
      Communicator comm(world);
      comm.set_timeout(60s);
      Linear &a = first[index_of(comm)], &b = second[index_of(comm)];
      GradientReducer reduce_a(comm, a.parameters()), reduce_b(comm, b.parameters());
      const auto loop = [&] {
        for (int step = 0; step < counts[index_of(comm)]; ++step) {
          const float x = Linear::input(step, comm.rank());
          reduce_a.begin();
          reduce_b.begin();
          a.zero_gradients();
          b.zero_gradients();
          a.backward(x);
          b.backward(x);
          reduce_b.ready(0);
          reduce_a.ready(1);
          reduce_a.ready(0);
          reduce_b.ready(1);
          reduce_b.finish();
          reduce_a.finish();
          a.descend(rate);
          b.descend(rate);
        }
      };
      const bool swapped = comm.rank() == 1;
      std::vector<Joinable*> joinables{&reduce_a, &reduce_b};
      if (swapped) std::swap(joinables[0], joinables[1]);
      if (way == Way::listed) {
        Join::over(joinables, loop);
      } else {
        Join outer(*joinables[0]);
        Join inner(*joinables[1]);
        loop();
        inner.finish();
        outer.finish();
      }
      comm.barrier();
    }));
    check_models(first, counts);
    check_models(second, counts);
  }
}

TEST_CASE("inner joins of which some ranks have fewer, or none") {
  // Rank r has r epochs, and in each of them one input more than the rank has. An epoch that a rank
  // does not have counts as one without inputs.
  std::vector<Linear> models(3), others(3);
  std::vector<int> ended(3);
  check_all(run_ranks(3, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Linear &model = models[index_of(comm)], &other = others[index_of(comm)];
    GradientReducer reducer(comm, model.parameters()), inner_reducer(comm, other.parameters());
    Join outer(reducer);
    for (int epoch = 0; epoch < comm.rank(); ++epoch) {
      Join inner(inner_reducer);
      steps(inner_reducer, other, 1 + comm.rank());
      inner.finish();
      steps(reducer, model, 1, epoch);
      ++ended[index_of(comm)];
    }
    outer.finish();
    comm.barrier();
  }));
  CHECK(ended == std::vector<int>{0, 1, 2});
  check_models(models, {0, 1, 2});
  for (const Linear& other : others) {
    CHECK(std::bit_cast<std::uint32_t>(other.w) == std::bit_cast<std::uint32_t>(others[0].w));
    CHECK(other.w != Linear().w);
  }
}

TEST_CASE("a rank that shadows very long says so once") {
  std::mutex mutex;
  std::vector<std::string> warnings;
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    Linear model;
    GradientReducer reducer(comm, model.parameters());
    JoinSettings settings;
    settings.warn = [&](const std::string& sentence) {
      const std::lock_guard lock(mutex);
      warnings.push_back(sentence);
    };
    Join join(reducer, settings);
    steps(reducer, model, comm.rank() == 0 ? 2 : 1100);
    join.finish();
  }));
  REQUIRE(warnings.size() == 1);
  CHECK(warnings[0] ==
        "dlaunch: rank 0 ran out of inputs more than 1000 iterations ago and only shadows the "
        "other ranks since: divide the inputs more evenly");
}

TEST_CASE("after the join its configuration is gone") {
  std::vector<Linear> models(2);
  check_all(run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    Linear& model = models[index_of(comm)];
    GradientReducer reducer(comm, model.parameters());
    {
      Join join(reducer, {.divide_by_initial_world_size = false});
      require(reducer.is_joined(), "in the join");
      steps(reducer, model, comm.rank());
      join.finish();
      require(!reducer.is_joined(), "after the join");
    }
    model = Linear();
    steps(reducer, model, 3);
    comm.barrier();
  }));
  check_models(models, {3, 3});
}

TEST_CASE("a join that ends within an iteration is an error on all ranks") {
  std::atomic<int> ready_line{0}, finish_line{0};
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Linear model;
    GradientReducer reducer(comm, model.parameters());
    Join join(reducer);
    reducer.begin();
    reducer.ready(0);
    if (comm.rank() == 1) {
      ready_line = __LINE__ + 1;
      reducer.ready(1);
      reducer.finish();
    }
    if (comm.rank() == 0) finish_line = __LINE__ + 1;
    join.finish();
  });
  for (const Outcome& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
    CHECK_MESSAGE(
        outcome.mentions(side(0, "join's shadow all_reduce #6 (who is here, sum, u64, 11 elements)",
                              finish_line)),
        outcome.text);
    CHECK_MESSAGE(
        outcome.mentions(
            side(1, "the reducer's all_reduce #6 (gradients of bucket 0, sum, f32, 2 elements)",
                 ready_line)),
        outcome.text);
  }
}

TEST_CASE("ranks that begin different joinables are told, all of them") {
  std::atomic<int> first_line{0}, second_line{0};
  const auto outcomes = run_ranks(3, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    Linear a, b;
    GradientReducer reduce_a(comm, a.parameters()), reduce_b(comm, b.parameters());
    Joinable* const joinables[] = {&reduce_a, &reduce_b};
    Join join(joinables);
    if (comm.rank() == 1) {
      first_line = __LINE__ + 1;
      reduce_a.begin();
    }
    if (comm.rank() == 2) {
      second_line = __LINE__ + 1;
      reduce_b.begin();
    }
    join.finish();
  });
  const std::string number = std::to_string(3 + 3 + 1);  // Two reducers were made.
  for (const Outcome& outcome : outcomes) {
    CHECK_MESSAGE(outcome.code == Errc::mismatch, outcome.text);
    CHECK_MESSAGE(outcome.mentions("the ranks with inputs began different things"), outcome.text);
    CHECK_MESSAGE(outcome.mentions("rank 1 begins part 1 of joinable 1 in join's all_reduce #" +
                                   number + " [join_test.cpp:" + std::to_string(first_line) +
                                   "], but rank 2 begins part 1 of joinable 2 in join's "
                                   "all_reduce #" +
                                   number + " [join_test.cpp:" + std::to_string(second_line) + "]"),
                  outcome.text);
  }
}

TEST_CASE("what a join refuses") {
  check_all(run_ranks(1, [](const World& world) {
    Communicator comm(world), other(world, "other");
    Linear model, second;
    GradientReducer reducer(comm, model.parameters()), elsewhere(other, second.parameters());
    const auto refusal = [](const std::vector<Joinable*>& joinables) {
      return thrown_by([&] { const Join join(joinables); }, Errc::misuse);
    };
    require(refusal({}) == "join: there is nothing to join", "none");
    require(refusal({nullptr}) == "join: a joinable is a null pointer", "null");
    require(refusal({&reducer, &reducer}) == "join: a joinable is listed twice", "twice");
    require(refusal({&reducer, &elsewhere}).find("same communicator") != std::string::npos, "two");
    Join outer(reducer);
    require(thrown_by([&] { const Join join(reducer, {.throw_on_early_termination = true}); },
                      Errc::misuse)
                    .find("throw_on_early_termination") != std::string::npos,
            "nested with another end");
    Join inner(reducer);
    require(thrown_by([&] { outer.finish(); }, Errc::misuse).find("is not finished") !=
                std::string::npos,
            "the outer one first");
    inner.finish();
    outer.finish();
    require(
        thrown_by([&] { outer.finish(); }, Errc::misuse).find("is finished") != std::string::npos,
        "twice");
    comm.barrier();
  }));
}
