// What an agent tells of its ranks' calls, and when.
#include "launcher/watch/core/call_news.hpp"

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::launcher;
using namespace std::chrono_literals;
using rendezvous::RankCalls;
using State = RankCalls::State;

namespace {

constexpr std::array<const char*, 2> ops{nullptr, "all_reduce"};

/// A rank whose calls are recorded.
class Rank {
 public:
  explicit Rank(int rank, int size = 4)
      : flight_(nullptr, -1, {ops, {}, {}}), world_(flight_.join(77, "world", rank, size)) {
    sight_.rank = rank;
    sight_.member = true;
    sight_.ring = &flight_.ring();
  }
  void begin(std::uint64_t sequence) {
    call_ = {.what = Flight::Call::pack(1, 0, 0, -1), .sequence = sequence, .count = 4096};
    world_.progress->begun.store(sequence);
    entry_.emplace(flight_, world_, call_, "train.cpp", 42);
  }
  void wait() { waiting_.emplace(&*entry_, call_, 1); }
  void end() {
    waiting_.reset();
    entry_->done();
    entry_.reset();
  }
  RankSight sight() {
    sight_.log = read_flight(*sight_.ring, 16);
    return sight_;
  }
  RankSight ended() {
    sight_.state = RankSight::State::ended;
    return sight();
  }

 private:
  Flight flight_;
  Flight::Place world_;
  Flight::Call call_;
  std::optional<Flight::Entry> entry_;
  std::optional<Flight::Waiting> waiting_;
  RankSight sight_;
};

}  // namespace

TEST_CASE("ranks that do the same are told as one") {
  Rank a(0), b(1), c(2), d(3);
  for (Rank* rank : {&a, &b, &c}) rank->begin(5);
  b.wait();
  a.wait();
  const auto now = Clock::now();
  const auto told = calls_now({a.sight(), b.sight(), c.sight(), d.sight()}, now + 2s);
  REQUIRE(told.size() == 3);
  CHECK(told[0].ranks == 2);
  CHECK(told[0].state == State::waits);
  CHECK(told[0].call == "all_reduce #5 [train.cpp:42]");
  CHECK(told[0].communicator == flight_hash(77));
  CHECK(told[0].sequence == 5);
  CHECK(told[0].age >= 2s);
  REQUIRE(told[0].reached.size() == 1);
  CHECK(told[0].reached[0].communicator == told[0].communicator);
  CHECK(told[0].reached[0].size == 4);
  CHECK(told[0].reached[0].sequence == 5);
  CHECK(told[0].reached[0].age >= 2s);
  CHECK(told[1].state == State::in_call);
  CHECK(told[2].state == State::none);
  CHECK(told[2].call.empty());
  CHECK(told[2].reached[0].sequence == 0);
  // A wait that has only begun is a call's usual course.
  CHECK(calls_now({a.sight()}, Clock::now())[0].state == State::in_call);
  for (Rank* rank : {&a, &b, &c}) rank->end();
  const auto after = calls_now({a.sight(), b.ended()}, Clock::now() + 3s);
  REQUIRE(after.size() == 2);
  CHECK(after[0].state == State::between);
  CHECK(after[0].call == "all_reduce #5 [train.cpp:42]");
  CHECK(after[0].age >= 3s);
  CHECK(after[1].state == State::ended);
}

TEST_CASE("a node whose ranks record nothing tells nothing") {
  RankSight foreign;
  CHECK(calls_now({foreign, foreign}, Clock::now()).empty());
  CallNews news(0, 2, Clock::time_point());
  CHECK_FALSE(news.look({foreign}, Clock::now()));
}

TEST_CASE("what has changed is told, at most once in so long; what has not is not") {
  Rank rank(0);
  const auto begin = Clock::now();
  CallNews news(0, 2, begin);
  rank.begin(1);
  rank.wait();
  REQUIRE(news.look({rank.sight()}, begin));
  // It waits from now on, which is news, and then nothing is for as long as it does.
  CHECK_FALSE(news.look({rank.sight()}, begin + 1900ms));
  REQUIRE(news.look({rank.sight()}, begin + 2s));
  for (auto time = begin; time < begin + 60s; time += 100ms) {
    CHECK_FALSE(news.look({rank.sight()}, time));
  }
  rank.end();
  rank.begin(2);
  const auto next = news.look({rank.sight()}, begin + 60s);
  REQUIRE(next);
  CHECK((*next)[0].reached[0].sequence == 2);
  // Another daemon, say, has to be told all of it.
  CHECK_FALSE(news.look({rank.sight()}, begin + 70s));
  news.forget();
  CHECK(news.look({rank.sight()}, begin + 70s));
  rank.end();
}

TEST_CASE("a node tells what it can, and a large job's nodes begin one after the other") {
  std::deque<Rank> many;
  std::vector<RankSight> sights;
  for (int i = 0; i < 100; ++i) {
    many.emplace_back(i).begin(static_cast<std::uint64_t>(i + 1));
    sights.push_back(many.back().sight());
  }
  CHECK(calls_now(sights, Clock::now()).size() == rendezvous::rank_calls_max);
  const auto now = Clock::now();
  CallNews first(0, 10'000, now), last(9'999, 10'000, now);
  CHECK(first.look({sights[0]}, now));
  CHECK_FALSE(last.look({sights[0]}, now + 4900ms));
  CHECK(last.look({sights[0]}, now + 5s));
  for (auto& rank : many) rank.end();
}
