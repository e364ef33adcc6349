// Ranks that train different things, or call a reducer wrongly: all of them are told.
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::Outcome;
using testing::run_ranks;

namespace {

struct Kind {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
};

struct Offer {
  std::vector<Kind> parameters;
  std::size_t buffers = 0;
  ReducerSettings settings = {};
};

/// A reducer of what the rank offers; values and gradients lie in `memory`.
GradientReducer made(Communicator& comm, const Offer& offer, std::vector<double>& memory) {
  memory.assign(1000, 0);
  std::vector<Parameter> parameters;
  for (const Kind& kind : offer.parameters) {
    std::size_t count = 1;
    for (const std::int64_t extent : kind.shape) count *= static_cast<std::size_t>(extent);
    parameters.push_back({kind.name, {memory.data(), count, kind.dtype}, {}, kind.shape});
  }
  std::vector<TensorView> buffers(offer.buffers, {memory.data() + 900, 1, DType::f64});
  return {comm, std::move(parameters), std::move(buffers), offer.settings};
}

/// The text of what one rank has, and where it said so.
std::string has(int rank, const std::string& what) {
  return "rank " + std::to_string(rank) + " has " + what +
         " in the reducer's broadcast_object #1 [reducer_errors_test.cpp:";
}

/// All ranks throw the same, and can go on with the communicator.
void check_refused(const std::vector<Offer>& offers, Errc code,
                   const std::vector<std::string>& parts) {
  const auto outcomes = run_ranks(static_cast<int>(offers.size()), [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(20s);
    std::vector<double> memory;
    std::optional<Error> thrown;
    try {
      made(comm, offers[static_cast<std::size_t>(comm.rank())], memory);
    } catch (const Error& error) {
      thrown = error;
    }
    comm.barrier();
    if (thrown) throw *thrown;
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == code);
    for (const auto& part : parts) CHECK_MESSAGE(outcome.mentions(part), outcome.text);
    CHECK(outcome.text == outcomes[0].text);
  }
}

/// One rank makes a mistake, the other steps on.
void check_misuse(const std::function<void(GradientReducer&)>& mistake, const std::string& part) {
  dlaunch::testing::Event told;
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<double> memory;
    GradientReducer reducer =
        made(comm, {{{"weight", DType::f64, {2, 3}}, {"bias", DType::f64, {2}}}}, memory);
    try {
      if (comm.rank() == 0) return mistake(reducer);
      for (int step = 0; step < 2; ++step) {
        reducer.begin();
        reducer.ready(1);
        reducer.ready(0);
        reducer.finish();
      }
    } catch (const Error&) {
      // A rank that ends at once may be gone before its word has arrived.
      comm.rank() == 0 ? static_cast<void>(told.wait()) : told.set();
      throw;
    }
  });
  CHECK_MESSAGE(outcomes[0].code == Errc::misuse, outcomes[0].text);
  CHECK_MESSAGE(outcomes[1].code == Errc::mismatch, outcomes[1].text);
  for (const Outcome& outcome : outcomes) {
    CHECK_MESSAGE(outcome.mentions(part), outcome.text);
    CHECK_MESSAGE(outcome.mentions(" [reducer_errors_test.cpp:"), outcome.text);
  }
}

}  // namespace

TEST_CASE("the first parameter that differs is named on all ranks") {
  const Kind w{"w", DType::f32, {3, 4}}, b{"b", DType::f32, {3}};
  SUBCASE("a shape") {
    check_refused({{{w, b}}, {{w, {"b", DType::f32, {4}}}}, {{{"w", DType::f32, {4, 3}}, b}}},
                  Errc::mismatch,
                  {has(0, "parameter 0 'w' (f32 [3, 4])"), has(2, "parameter 0 'w' (f32 [4, 3])")});
  }
  SUBCASE("a dtype") {
    check_refused({{{w, b}}, {{w, {"b", DType::f64, {3}}}}}, Errc::mismatch,
                  {has(0, "parameter 1 'b' (f32 [3])"), has(1, "parameter 1 'b' (f64 [3])")});
  }
  SUBCASE("the count") {
    check_refused({{{w, b}}, {{w, b}}, {{w}}}, Errc::mismatch,
                  {has(0, "parameter 1 'b' (f32 [3])"), "rank 2 has settings"});
    check_refused({{{w}, 1}, {{w, b}, 1}}, Errc::mismatch,
                  {has(0, "buffer 0 (f64 [1])"), "rank 1 has parameter 1 'b'"});
  }
  SUBCASE("buffers and settings") {
    check_refused({{{w}, 1}, {{w}, 2}}, Errc::mismatch, {"rank 1 has buffer 1"});
    check_refused({{{w}, 0, {.bucket_bytes = 7}}, {{w}, 0}}, Errc::mismatch, {"bucket_bytes 7"});
  }
}

TEST_CASE("parameters that cannot be trained are refused on all ranks") {
  check_refused({{{{"w", DType::f32, {2}}}}, {{{"w", DType::i32, {2}}}}}, Errc::misuse,
                {"on rank 1 parameter 0 'w' has i32 elements", " [reducer_errors_test.cpp:"});
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    std::vector<float> value(3), gradient(comm.rank() == 0 ? 2 : 3);
    const GradientReducer reducer(comm, {{"w", value, gradient}});
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Errc::misuse);
    CHECK_MESSAGE(
        outcome.mentions("on rank 0 parameter 0 'w' has 3 f32 elements, its gradient 2 f32"),
        outcome.text);
  }
}

TEST_CASE("a mistake on one rank reaches the other") {
  check_misuse([](GradientReducer& reducer) { reducer.ready(0); }, "ready() without begin()");
  check_misuse([](GradientReducer& reducer) { reducer.finish(); }, "finish() without begin()");
  check_misuse(
      [](GradientReducer& reducer) {
        reducer.begin();
        reducer.begin();
      },
      "begin() in an iteration that finish() has not ended");
  check_misuse(
      [](GradientReducer& reducer) {
        reducer.begin();
        reducer.ready(2);
      },
      "ready(2), but there are 2 parameters");
  check_misuse(
      [](GradientReducer& reducer) {
        reducer.begin();
        reducer.ready(1);
        reducer.ready(1);
      },
      "parameter 1 'bias' is ready twice in one iteration");
  check_misuse(
      [](GradientReducer& reducer) {
        reducer.begin();
        reducer.ready(1);
        reducer.finish();
      },
      "parameter 0 'weight' was not ready when finish() was called");
}

TEST_CASE("ranks that disagree on whether to sum under a join are told") {
  const auto outcomes = run_ranks(2, [&](const World& world) {
    Communicator comm(world);
    comm.set_timeout(60s);
    std::vector<double> memory;
    GradientReducer reducer = made(comm, {{{"w", DType::f32, {2}}}}, memory);
    Join join(reducer);
    std::optional<GradientReducer::NoSync> apart;
    if (comm.rank() == 0) apart.emplace(reducer);
    reducer.begin();
  });
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("1 of 2 ranks sum their gradients in this iteration"),
                  outcome.text);
    for (const std::string side : {"rank 0 is in no_sync()", "rank 1 sums"}) {
      CHECK_MESSAGE(outcome.mentions(side + " in join's all_reduce #5 [reducer_errors_test.cpp:"),
                    outcome.text);
    }
  }
}
