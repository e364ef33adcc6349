// The messages between agent and rendezvous: golden bytes, round trips, limits.
#include "rendezvous/service/messages.hpp"

#include <csignal>
#include <optional>
#include <string>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

template <class Message>
Bytes payload_of(const Message& what) {
  Bytes out;
  message::encode(out, what);
  return out;
}

/// Whole it decodes, and encodes to the same; cut short anywhere or with a byte more it does not.
template <class Message>
Message again(const Message& what) {
  const Bytes out = payload_of(what);
  for (std::size_t size = 0; size < out.size(); ++size) {
    CHECK_FALSE(message::decode<Message>(BytesView(out).first(size)));
  }
  Bytes longer = out;
  longer.push_back(std::byte{});
  CHECK_FALSE(message::decode<Message>(longer));
  const auto decoded = message::decode<Message>(out);
  REQUIRE(decoded);
  CHECK(payload_of(*decoded) == out);
  return *decoded;
}

message::Join a_join() {
  return {.offer = {.id = "node-1",
                    .host = "host-1",
                    .workers = 8,
                    .rank_hint = 3,
                    .store_addresses = {"10.0.0.1:29500", "[fe80::1]:29500"},
                    .launch = {.line = 17, .start = 4},
                    .share = {.kernel = "boot",
                              .processors = {4, 1.5, {{0, 2}, {6, 2}}, "25:77"},
                              .memory = "boot/net",
                              .lends_at = "@dlaunch-memory-1"}},
          .rules = {.nodes_min = 2,
                    .nodes_max = 4,
                    .spares = 2,
                    .max_restarts = 3,
                    .restart_window = 300s,
                    .restart_backoff = {.first = 250ms, .longest = 20s},
                    .continue_on_failure = true,
                    .join_timeout = 600s,
                    .last_call = 1500ms,
                    .liveness = {.lease = 5s, .reconnect_grace = 2s}},
          .holding = Holding{1, 7, 2, 3, 4, 24, 32},
          .version = "1.2.3"};
}

message::Admitted an_admission(std::size_t roster, std::size_t addresses = 1) {
  message::Admitted what;
  what.admission.incarnation = 5;
  what.hosted = true;
  what.admission.epoch = 9;
  what.admission.node_count = 2;
  what.admission.first_rank = 4;
  what.admission.local_size = 4;
  what.admission.world_size = 8;
  what.admission.store_addresses = std::vector<std::string>{"10.0.0.1:29500"};
  what.admission.crowded = true;
  what.admission.memory = {{{0, 4}, {4, 4}}, "@dlaunch-memory-2"};
  const std::vector<std::string> at(addresses, "10.0.0.2:1");
  what.admission.roster =
      std::vector<rendezvous::Admission::Entry>(roster, {"node", "host", 4, 4, at});
  return what;
}

using Outcome = rendezvous::WorkersEnded::Outcome;

/// Rank 3 was killed 250 ms ago, and had lost rank 5.
Fact a_fact() {
  Fact fact;
  fact.rank = 3;
  fact.end = Fact::End::failed;
  fact.signal = SIGKILL;
  fact.when = Clock::time_point(std::chrono::milliseconds(250));
  fact.claim = Claim{Fault::lost, {5}};
  return fact;
}

}  // namespace

TEST_CASE("golden bytes: the examples of docs/wire.md") {
  const message::WorkerFailed failed{7, a_fact()};
  const auto bytes = payload_of(failed);
  const std::string expected(
      "\x07\0\0\0\0\0\0\0"
      "\x03\0\0\0"
      "\x02"
      "\0\0\0\0"
      "\x09\0\0\0"
      "\0"
      "\xfa\0\0\0\0\0\0\0"
      "\x01"
      "\x01"
      "\x01\0\0\0\x05\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\0\0\0\0\0\0\0\0"
      "\0\0\0\0"
      "\0\0\0\0",
      64);
  CHECK(as_text(bytes) == expected);
}

TEST_CASE("messages come back as they were") {
  const auto join = again(a_join());
  CHECK(join.offer == a_join().offer);
  CHECK(join.rules == a_join().rules);
  CHECK(join.holding == a_join().holding);
  CHECK(join.version == "1.2.3");
  CHECK_FALSE(again(message::Join{}).holding);

  const auto leave = again(message::Leave{{0, 143, "stopped by SIGTERM", true, true}});
  CHECK(leave.exit_code == 143);
  CHECK(leave.reason == "stopped by SIGTERM");
  CHECK(leave.closes);
  CHECK(leave.ends_job);
  CHECK(payload_of(message::Heartbeat{}).empty());
  const auto failed = again(message::WorkerFailed{7, a_fact()});
  CHECK(failed.fact == a_fact());

  const rendezvous::RankDetails details{3, 1, "n", "h", 42, 1234, "/e", "no", {"a", "b"}, true};
  const auto ended = again(
      message::WorkersEnded{7, Outcome::stopped, 3, "sentence", {a_fact()}, {{8, 4}}, {details}});
  REQUIRE(ended.facts.size() == 1);
  CHECK(ended.facts[0] == a_fact());
  REQUIRE(ended.left.size() == 1);
  CHECK(ended.left[0].first == 8);
  CHECK(ended.left[0].count == 4);
  REQUIRE(ended.details.size() == 1);
  CHECK(ended.details[0] == details);
  CHECK(again(message::WorkerLeft{{0, 7, 3}}).rank == 3);
  CHECK(ended.outcome == Outcome::stopped);
  CHECK(ended.sentence == "sentence");

  const CommunicatorCalls calls{.communicator = 1,
                                .name = "world",
                                .rank = 3,
                                .ranks = 2,
                                .begun = 9,
                                .count = 8,
                                .digest = 7,
                                .heard = true,
                                .last = {{9, 90, "broadcast #9"}}};
  const auto made = again(message::CallsMade{{0, 7, {calls, CommunicatorCalls{}}}});
  CHECK(made.epoch == 7);
  REQUIRE(made.communicators.size() == 2);
  CHECK(made.communicators[0] == calls);
  CHECK(made.communicators[1] == CommunicatorCalls{});

  CHECK(again(an_admission(2)).admission == an_admission(2).admission);
  CHECK(again(an_admission(0)).admission.incarnation == 5);
  CHECK(again(an_admission(0)).hosted);
  CHECK_FALSE(again(an_admission(0)).host);
  auto with_host = an_admission(0);
  with_host.host = HostPlace{"b", "host-b", 4, 2};
  const auto place = again(with_host).host;
  REQUIRE(place);
  CHECK(place->id == "b");
  CHECK(place->host == "host-b");
  CHECK(place->first_rank == 4);
  CHECK(place->workers == 2);
  CHECK(again(message::Refused{{0, Errc::mismatch, 78, "why"}}).code == Errc::mismatch);
  CHECK(again(message::Stopped{{0, 7, Stop::Cause::evicted, "why"}}).cause == Stop::Cause::evicted);
  const Departure how{Departure::Kind::ended, 0, SIGKILL, true, 3, "words"};
  const auto lost = again(message::RanksLost{{7, 8, 4, "host", how}});
  CHECK(lost.how == how);
  CHECK(lost.first_rank == 8);
  CHECK(lost.count == 4);
  CHECK(again(message::Standing{{0, "waiting"}}).sentence == "waiting");
  CHECK(again(message::Finished{{79, std::nullopt, "over"}}).exit_code == 79);
  const Verdict verdict{Verdict::Kind::absent, {3, 9}, 75, 0, SIGKILL, true, "it sleeps"};
  const auto finished =
      again(message::Finished{{79, verdict, "over", details, Finish::Cause::node_lost}});
  CHECK(finished.cause == Finish::Cause::node_lost);
  CHECK(finished.verdict == verdict);
  CHECK(finished.details == details);
}

TEST_CASE("times travel as ages, for clocks differ") {
  const auto at = [](int seconds) { return Clock::time_point(std::chrono::seconds(seconds)); };
  rendezvous::WorkerFailed how{1, 7, a_fact()};
  how.fact.when = at(100);
  const auto there = message::heard(again(message::told(how, at(102))), 5, at(5002));
  CHECK(there.session == 5);
  CHECK(there.fact.when == at(5000));
  rendezvous::WorkersEnded end{1, 7, Outcome::failed, 3, ""};
  end.facts.ranks.emplace(how.fact.rank, how.fact);
  end.facts.add_left(4, 2);
  const auto ended = message::heard(again(message::told(end, at(103))), 5, at(5003));
  CHECK(ended.facts.ranks.at(3).when == at(5000));
  CHECK(ended.facts.has_left(5));
  CHECK_FALSE(ended.facts.has_left(6));
}

TEST_CASE("of too many facts those that blame others are left out") {
  rendezvous::WorkersEnded end{1, 7, Outcome::failed, 3, ""};
  for (int rank = 0; rank < 400; ++rank) {
    Fact fact = a_fact();
    fact.rank = rank;
    if (rank == 399) fact.claim.reset();
    end.facts.ranks.emplace(rank, fact);
  }
  const auto told = message::told(end, {});
  CHECK(told.facts.size() == rendezvous::facts_max);
  CHECK(told.facts.front().rank == 399);
}

TEST_CASE("the successors of a host") {
  const auto standby =
      message::decode<message::Standby>(payload_of(message::Standby{7, "10.0.0.2:4000"}));
  REQUIRE(standby);
  CHECK(standby->epoch == 7);
  CHECK(standby->address == "10.0.0.2:4000");
  message::Succession succession{{7, {{1, "10.0.0.2:4000"}, {3, "[fd00::4]:5000"}}}};
  const auto decoded = message::decode<message::Succession>(payload_of(succession));
  REQUIRE(decoded);
  CHECK(decoded->epoch == 7);
  CHECK(decoded->order == succession.order);
  succession.order.resize(rendezvous::successors_max + 1);
  CHECK_FALSE(message::decode<message::Succession>(payload_of(succession)));
}

TEST_CASE("limits hold") {
  SUBCASE("a node has at most 64 addresses") {
    auto join = a_join();
    join.offer.store_addresses.assign(message::addresses_max, "a:1");
    CHECK(message::decode<message::Join>(payload_of(join)));
    join.offer.store_addresses.emplace_back("a:1");
    CHECK_FALSE(message::decode<message::Join>(payload_of(join)));
  }
  SUBCASE("a roster has at most 65,536 entries, each within the same limits") {
    CHECK(message::decode<message::Admitted>(payload_of(an_admission(message::roster_max, 0))));
    CHECK_FALSE(
        message::decode<message::Admitted>(payload_of(an_admission(message::roster_max + 1, 0))));
    CHECK_FALSE(message::decode<message::Admitted>(
        payload_of(an_admission(1, message::addresses_max + 1))));
  }
  SUBCASE("too many calls") {
    message::CallsMade made{{0, 1, {CommunicatorCalls{}}}};
    made.communicators[0].last.resize(message::calls_max + 1);
    CHECK_FALSE(message::decode<message::CallsMade>(payload_of(made)));
    made.communicators.assign(message::communicators_max + 1, {});
    CHECK_FALSE(message::decode<message::CallsMade>(payload_of(made)));
  }
  SUBCASE("texts are cut when they are written") {
    const auto cut = message::decode<message::Standing>(
        payload_of(message::Standing{{0, std::string(wire::text_bytes_max + 1, 'x')}}));
    REQUIRE(cut);
    CHECK(cut->sentence.size() == wire::text_bytes_max);
  }
  SUBCASE("an outcome and a cause that do not exist") {
    Bytes ended = payload_of(message::WorkersEnded{});
    ended[8] = std::byte{4};
    CHECK_FALSE(message::decode<message::WorkersEnded>(ended));
    Bytes stopped = payload_of(message::Stopped{});
    stopped[8] = std::byte{3};
    CHECK_FALSE(message::decode<message::Stopped>(stopped));
  }
}

TEST_CASE("durations are milliseconds, rounded up, and end somewhere") {
  auto join = a_join();
  join.rules.liveness.lease = 1us;
  join.rules.join_timeout = Clock::duration::max();
  join.rules.last_call = -1s;
  const auto decoded = message::decode<message::Join>(payload_of(join));
  REQUIRE(decoded);
  CHECK(decoded->rules.liveness.lease == 1ms);
  CHECK(decoded->rules.join_timeout > std::chrono::hours(24 * 365));
  CHECK(decoded->rules.last_call == 0s);
  // It can be added to any time.
  CHECK(Clock::now() + decoded->rules.join_timeout > Clock::now());
}

TEST_CASE("what ranks do now travels with ages, and within limits") {
  message::CallsNow what{9, {}};
  RankCalls ranks{.ranks = 7,
                  .state = RankCalls::State::waits,
                  .call = "all_reduce #5 [train.cpp:42]",
                  .communicator = 11,
                  .sequence = 5,
                  .age = 1500ms,
                  .reached = {{11, 8, 5, 1500ms}, {12, 2, 3, 9s}}};
  what.ranks = {ranks, {.ranks = 1, .state = RankCalls::State::ended}};
  const auto got = again(what);
  REQUIRE(got.ranks.size() == 2);
  CHECK(got.epoch == 9);
  CHECK(got.ranks[0].call == ranks.call);
  CHECK(got.ranks[0].age == 1500ms);
  CHECK(got.ranks[0].reached[1].size == 2);
  CHECK(got.ranks[1].state == RankCalls::State::ended);
  // A node whose eight ranks do the same says so in little more than a heartbeat's frame.
  what.ranks.resize(1);
  what.ranks[0].reached.resize(1);
  CHECK(payload_of(what).size() == 105);
  ranks.call.assign(call_bytes_max + 1, 'x');
  what.ranks.assign(rank_calls_max, ranks);
  CHECK(again(what).ranks.back().call.size() == call_bytes_max);  // It is cut.
  what.ranks.push_back(ranks);
  CHECK_FALSE(message::decode<message::CallsNow>(payload_of(what)));
  what.ranks.resize(1);
  what.ranks[0].reached.resize(reached_max + 1);
  CHECK_FALSE(message::decode<message::CallsNow>(payload_of(what)));
}
