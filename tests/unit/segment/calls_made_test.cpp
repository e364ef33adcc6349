#include "runtime/segment/calls_made.hpp"

#include <array>
#include <deque>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

constexpr std::size_t calls_max = 64;

/// The rings of a node's ranks, in which each has joined a communicator of so many ranks.
class Ranks {
 public:
  Ranks(int here, int size) {
    for (int rank = 0; rank < here; ++rank) {
      auto& flight = flights_.emplace_back(nullptr, -1, words());
      places_.push_back(flight.join(77, "world", rank, size));
    }
  }
  static Flight::Call broadcast(std::uint64_t sequence, int root) {
    return {.what = Flight::Call::pack(1, 1, 0, root), .sequence = sequence, .count = 8};
  }
  void call(std::size_t rank, const Flight::Call& call, bool returns = true) {
    places_[rank].progress->begun.store(call.sequence);
    places_[rank].count_rooted(call);
    Flight::Entry entry(flights_[rank], places_[rank], call, "train.cpp", 42);
    if (returns) entry.done();
  }
  void message(std::size_t rank) {
    Flight::Entry(flights_[rank], places_[rank], {.what = Flight::Call::pack(2, 1, 0, 1)}, "", 0)
        .done();
  }
  Flight& flight(std::size_t rank) { return flights_[rank]; }
  Flight::Place& place(std::size_t rank) { return places_[rank]; }
  std::vector<CommunicatorCalls> made() const {
    std::deque<FlightLog> logs;
    std::vector<RankFlight> ranks;
    for (const auto& flight : flights_) {
      const auto& log = logs.emplace_back(read_flight(flight.ring()));
      ranks.push_back({static_cast<int>(ranks.size()), &flight.ring(), &log});
    }
    return calls_made(ranks, calls_max);
  }

 private:
  static FlightWords words() {
    static constexpr std::array<const char*, 3> ops{nullptr, "broadcast", "send"};
    static constexpr std::array<const char*, 2> dtypes{nullptr, "f32"};
    return {ops, dtypes, {}};
  }
  std::deque<Flight> flights_;
  std::vector<Flight::Place> places_;
};

/// The disagreement that the rendezvous finds in what a node told.
std::string disagreement(const std::vector<CommunicatorCalls>& told) {
  CallLedger ledger;
  for (const auto& calls : told) ledger.add(calls);
  return ledger.disagreement().value_or("");
}

}  // namespace

TEST_CASE("of a communicator that other nodes' ranks are in, too, one rank's calls are told") {
  Ranks ranks(2, 3);
  for (std::uint64_t sequence = 1; sequence <= 70; ++sequence) {
    ranks.call(0, Ranks::broadcast(sequence, 0));
    ranks.call(1, Ranks::broadcast(sequence, 0));
  }
  const auto made = ranks.made();
  REQUIRE(made.size() == 1);
  CHECK(made[0].communicator == 77);
  CHECK(made[0].rank == 0);
  CHECK(made[0].count == 70);
  CHECK(made[0].ranks == 2);
  REQUIRE(made[0].last.size() == calls_max);
  CHECK(made[0].last.back().sequence == 70);
  CHECK(made[0].last.back().text == "broadcast #70 (f32, 8 elements, root 0) [train.cpp:42]");
}

TEST_CASE("of one whose ranks are all here nothing is told, unless they do not agree") {
  Ranks ranks(2, 2);
  ranks.call(0, Ranks::broadcast(1, 0));
  ranks.call(1, Ranks::broadcast(1, 0));
  CHECK(ranks.made().empty());
  ranks.call(0, Ranks::broadcast(2, 0));
  ranks.call(1, Ranks::broadcast(2, 1));
  REQUIRE(ranks.made().size() == 2);
  CHECK(disagreement(ranks.made()) ==
        "the ranks do not agree: rank 0 made broadcast #2 (f32, 8 elements, root 0) "
        "[train.cpp:42], but rank 1 made broadcast #2 (f32, 8 elements, root 1) [train.cpp:42]");
  CHECK_FALSE(ranks.made()[0].heard);
  ranks.place(1).progress->heard.store(1);
  CHECK(ranks.made()[0].heard);
}

TEST_CASE("the digest tells what the records do not any more") {
  Ranks ranks(2, 2);
  ranks.call(0, Ranks::broadcast(1, 0));
  ranks.call(1, Ranks::broadcast(1, 1));
  for (std::size_t i = 0; i < FlightRing::records_max; ++i) ranks.message(0);
  REQUIRE(ranks.made().size() == 2);
  CHECK(disagreement(ranks.made()) ==
        "the ranks do not agree: rank 0 and rank 1 made different calls with a root before #2, of "
        "which no record is left");
}

TEST_CASE("communicators that have no place any more, and those that never had one, are told") {
  constexpr std::size_t many = 400;
  for (const bool stay : {false, true}) {
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{39}, many - 1}) {
      CAPTURE(stay);
      CAPTURE(wrong);
      Ranks ranks(2, 2);
      for (std::size_t number = 0; number < many; ++number) {
        for (const std::size_t rank : {0U, 1U}) {
          auto& flight = ranks.flight(rank);
          ranks.place(rank) = flight.join(1000 + number, "child", static_cast<int>(rank), 2);
          ranks.call(rank, Ranks::broadcast(1, number == wrong ? static_cast<int>(rank) : 0));
          if (!stay) flight.leave(ranks.place(rank));
        }
      }
      for (std::size_t i = 0; i < FlightRing::records_max; ++i) ranks.message(1);
      const auto made = ranks.made();
      REQUIRE(made.size() == 2);
      CHECK(made[0].communicator == 1000 + wrong);
      const bool has_name =
          stay ? wrong < FlightRing::groups_max - 1 : many - wrong <= FlightRing::groups_max - 1;
      CHECK(disagreement(made) ==
            "the ranks do not agree: rank 0 and rank 1 made different calls with a root before #2 "
            "of " +
                std::string(has_name ? "'child'" : "one of many communicators") +
                ", of which no record is left");
    }
  }
}

TEST_CASE("a call that failed in a communicator that has no place any more has been heard of") {
  Ranks ranks(2, 2);
  for (std::uint64_t id = 1000; id < 1040; ++id) {
    for (const std::size_t rank : {0U, 1U}) {
      ranks.place(rank) = ranks.flight(rank).join(id, "child", static_cast<int>(rank), 2);
      ranks.call(rank, Ranks::broadcast(1, static_cast<int>(rank)));
      if (rank == 1) ranks.place(rank).progress->heard.store(1);
      ranks.flight(rank).leave(ranks.place(rank));
    }
  }
  REQUIRE(ranks.made().size() == 80);
  for (const auto& made : ranks.made()) CHECK(made.heard);
  CHECK(disagreement(ranks.made()).empty());
}

TEST_CASE("a worker that ran two programs, one after the other, is not judged") {
  Ranks ranks(1, 2);
  ranks.call(0, Ranks::broadcast(1, 0));
  ranks.flight(0).leave(ranks.place(0));
  ranks.place(0) = ranks.flight(0).join(77, "world", 0, 2);
  ranks.call(0, Ranks::broadcast(1, 1));
  for (const auto& made : ranks.made()) CHECK(made.heard);
  CHECK(disagreement(ranks.made()).empty());
}
