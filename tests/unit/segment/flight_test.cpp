// The flight recorder: what it keeps of a rank's calls, and who can read it when.
#include "runtime/segment/flight.hpp"

#include "runtime/segment/flight_log.hpp"
#include "runtime/segment/remote_barrier.hpp"
#include "runtime/segment/segment.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;

namespace {

constexpr std::array<const char*, 4> ops{nullptr, "barrier", "all_reduce", "send"};
constexpr std::array<const char*, 2> dtypes{nullptr, "f32"};
constexpr std::array<const char*, 2> reductions{nullptr, "sum"};
const FlightWords words{ops, dtypes, reductions};

Flight::Call all_reduce(std::uint64_t sequence) {
  return {.what = Flight::Call::pack(2, 1, 1, -1), .sequence = sequence, .count = 8, .argument = 3};
}

std::shared_ptr<Segment> new_segment() {
  return Segment::create({.job = 1, .world_ranks = {4, 5}, .arena_bytes = 4096});
}

}  // namespace

TEST_CASE("a call is recorded with what it is, where, and how it ended") {
  Flight flight(nullptr, -1, words);
  const auto world = flight.join(77, "world", 1, 4);
  { Flight::Entry(flight, world, all_reduce(1), "/home/me/train.cpp", 42).done(); }
  { const Flight::Entry failed(flight, world, all_reduce(2), "train.cpp", 43); }
  Flight::Entry under_way(flight, world, all_reduce(3), "", 0);

  const auto log = read_flight(flight.ring());
  CHECK(log.ready);
  CHECK(log.pid == ::getpid());
  REQUIRE(log.calls.size() == 3);
  const FlightNames names{flight.ring()};
  CHECK(names.full(log.calls[0]) == "all_reduce #1 (sum, f32, 8 elements)");
  CHECK(names.label_and_site(log.calls[0]) == "all_reduce #1 [train.cpp:42]");
  CHECK(log.calls[0].ended);
  CHECK_FALSE(log.calls[0].failed);
  CHECK(log.calls[1].ended);
  CHECK(log.calls[1].failed);
  CHECK_FALSE(log.calls[2].ended);
  CHECK(names.label_and_site(log.calls[2]) == "all_reduce #3");
  REQUIRE(log.groups.size() == 1);
  CHECK(log.groups[0].begun == 0);  // Its communicator counts.
  CHECK(log.groups[0].size == 4);
  under_way.done();
}

TEST_CASE("a call says whose it is and what for, also where both fill their places") {
  constexpr std::array<const char*, 3> owners{"", "join's ", "the reducer's "};
  constexpr std::array<const char*, 3> purposes{"", "twenty-four letters long", "bucket"};
  constexpr std::uint32_t with_part = 1U << 2;
  Flight flight(nullptr, -1, {ops, dtypes, reductions, owners, purposes, with_part});
  const auto world = flight.join(77, "world", 1, 4);
  Flight::Call call = all_reduce(1);
  const auto record = [&](std::uint32_t purpose) {
    call.traffic = purpose << FlightRing::purpose_shift | 3;
    Flight::Entry(flight, world, call, "train.cpp", 42).done();
  };
  record(0);
  record(1);
  record(2);
  call.traffic = 1U << FlightRing::purpose_shift | 3 | FlightRing::shadow_bit;
  Flight::Entry(flight, world, call, "train.cpp", 42).done();

  const auto log = read_flight(flight.ring());
  const FlightNames names{flight.ring()};
  CHECK(names.full_and_site(log.calls.at(0)) ==
        "all_reduce #1 (sum, f32, 8 elements) [train.cpp:42]");
  CHECK(names.full(log.calls.at(1)) ==
        "join's all_reduce #1 (twenty-four letters long, sum, f32, 8 elements)");
  CHECK(names.full(log.calls.at(2)) ==
        "the reducer's all_reduce #1 (bucket 3, sum, f32, 8 elements)");
  CHECK_FALSE(log.calls[0].agrees_with(log.calls[1]));
  CHECK(log.calls[1].agrees_with(log.calls.at(3)));  // It is the shadow of that call.
}

TEST_CASE("a message says with whom, by which tag, on which communicator") {
  Flight flight(nullptr, -1, words);
  const auto pair = flight.join(5, "pair", 0, 2);
  Flight::Entry(flight, pair, {.what = Flight::Call::pack(3, 1, 0, 1), .count = 1, .argument = 7},
                "a.cpp", 1)
      .done();
  const auto log = read_flight(flight.ring());
  CHECK(FlightNames{flight.ring()}.label(log.calls.at(0)) == "send to rank 1 (tag 7) of 'pair'");
  // Its communicator has ended: others take places that nobody had before.
  const FlightNames names{flight.ring()};
  flight.leave(pair);
  for (std::uint64_t id = 6; id < 5 + FlightRing::groups_max; ++id) flight.join(id, "other", 0, 2);
  CHECK(names.label(log.calls[0]) == "send to rank 1 (tag 7) of 'pair'");
  const FlightLog after = read_flight(flight.ring());
  REQUIRE(after.group_of(5) != nullptr);
  CHECK(after.group_of(5)->ended);
  CHECK_FALSE(after.group_of(6)->ended);
  // There is none left, and another one takes its place.
  flight.join(1000, "the last", 0, 2);
  CHECK(names.label(log.calls[0]) == "send to rank 1 (tag 7)");
  CHECK(read_flight(flight.ring()).group_of(5) == nullptr);
}

TEST_CASE("a communicator's place goes to another when it is the one that ended first") {
  Flight flight(nullptr, -1, words);
  std::vector<Flight::Place> places;
  for (std::uint64_t id = 1; id <= FlightRing::groups_max; ++id) {
    places.push_back(flight.join(id, "c" + std::to_string(id), 0, 1));
  }
  for (const std::size_t leaves : {20u, 3u, 11u}) flight.leave(places[leaves]);
  for (const std::uint64_t id : {101u, 102u}) flight.join(id, "new", 0, 1);
  const auto log = read_flight(flight.ring());
  CHECK(log.group_of(21) == nullptr);
  CHECK(log.group_of(4) == nullptr);
  REQUIRE(log.group_of(12) != nullptr);
  CHECK(log.group_of(12)->name == "c12");
  CHECK(log.group_of(101)->name == "new");
  // The same one anew, while what is left of it before can be read, too.
  flight.join(12, "again", 0, 1);
  CHECK(read_flight(flight.ring()).group_of(12)->name == "again");
}

TEST_CASE("a call that waits is seen when its record has been overwritten") {
  Flight flight(nullptr, -1, words);
  const auto world = flight.join(77, "world", 1, 4);
  Flight::Entry first(flight, world, all_reduce(1), "train.cpp", 1);
  {
    const Flight::Waiting waiting(&first, all_reduce(1), 3);
    for (std::uint64_t i = 0; i < 2 * FlightRing::records_max; ++i) {
      Flight::Entry(flight, world, all_reduce(2 + i), "train.cpp", 2).done();
    }
    const auto log = read_flight(flight.ring());
    CHECK(log.calls.size() == FlightRing::records_max);
    CHECK(log.calls.front().sequence == FlightRing::records_max + 2);
    REQUIRE(log.waits.size() == 1);
    CHECK(log.waits[0].whom == 3);
    CHECK(log.waits[0].call.sequence == 1);
    const std::string doing = doing_text(flight.ring(), log, Clock::now());
    CHECK(doing.starts_with("in all_reduce #1 [train.cpp:1] for "));
    CHECK(doing.ends_with(", waiting for rank 3"));
  }
  first.done();  // Into a record that is another one's now.
  CHECK(read_flight(flight.ring()).calls.front().ended);
  CHECK(read_flight(flight.ring()).waits.empty());
}

TEST_CASE(
    "each call has its own site, however they follow each other, and none where there is none") {
  Flight flight(nullptr, -1, words);
  const auto world = flight.join(77, "world", 1, 4);
  const std::string file = "a.cpp";
  const auto record = [&](const char* at, int line) {
    Flight::Entry(flight, world, all_reduce(1), at, line).done();
  };
  constexpr int lines = 40;
  for (int round = 0; round < 2; ++round) {
    for (int line = 1; line <= lines; ++line) record(file.c_str(), line);
    record(nullptr, 0);
    record("", 0);
    record("", 3);
  }
  const auto log = read_flight(flight.ring());
  const FlightNames names{flight.ring()};
  REQUIRE(log.calls.size() == 2 * (lines + 3));
  for (std::size_t i = 0; i < log.calls.size(); ++i) {
    const std::size_t line = i % (lines + 3) + 1;
    CHECK(names.site(log.calls[i]) == (line > lines ? "" : "a.cpp:" + std::to_string(line)));
  }
}

TEST_CASE("more groups, sites and waits than there is room for are left out, and nothing breaks") {
  Flight flight(nullptr, -1, words);
  std::vector<Flight::Place> places;
  for (std::uint64_t id = 1; id <= FlightRing::groups_max + 3; ++id) {
    places.push_back(
        flight.join(id, "a communicator with a name that is longer than its place is", 0, 1));
  }
  const std::string file = "some_file.cpp";
  for (int line = 0; line < 200; ++line) {
    Flight::Entry(flight, places.back(), all_reduce(1), file.c_str(), line).done();
  }
  const auto log = read_flight(flight.ring());
  CHECK(log.groups.size() == FlightRing::groups_max);
  CHECK(log.groups[0].name.ends_with("longer than its place is"));
  const FlightNames names{flight.ring()};
  CHECK(names.site(log.calls[0]) == "some_file.cpp:0");
  CHECK(names.site(log.calls[199]).empty());
  CHECK(names.group(log.calls[199]).empty());
  for (const auto& place : places) flight.leave(place);
  for (const auto& group : read_flight(flight.ring()).groups) CHECK(group.ended);
}

TEST_CASE("counts outlive a communicator's place, and what is not needed any more is free again") {
  Flight flight(nullptr, -1, words);
  std::vector<Flight::Place> places;
  constexpr std::uint64_t all = FlightRing::groups_max + FlightRing::others_max + 2;
  for (std::uint64_t id = 1; id <= all; ++id) places.push_back(flight.join(id, "c", 0, 3));
  CHECK(places[all - 1].progress == places[all - 2].progress);  // No room.
  CHECK(places[all - 3].progress != places[all - 2].progress);
  auto log = read_flight(flight.ring());
  REQUIRE(log.others.size() == FlightRing::others_max);
  CHECK(log.others[0].id == FlightRing::groups_max + 1);
  CHECK(log.others[0].size == 3);

  for (const std::uint64_t id : {40u, 50u, 60u}) places[id - 1].count_rooted(all_reduce(1));
  places[44].progress->heard.store(1);
  for (const auto& place : places) flight.leave(place);
  log = read_flight(flight.ring());
  REQUIRE(log.others.size() == 4);
  CHECK(log.others[0].id == 40);
  CHECK(log.others[0].rooted == 1);
  CHECK(log.others[0].digest == Flight::digest_of(0, all_reduce(1)));
  CHECK(log.others[1].id == 45);
  CHECK(log.others[1].heard);

  // The groups have ended: of those whose places are taken only what counted is kept.
  const auto last = flight.join(2000, "new", 0, 3);
  last.progress->rooted.store(7);
  CHECK(read_flight(flight.ring()).others.size() == 4);
  flight.leave(last);
  for (std::uint64_t id = 0; id < FlightRing::groups_max; ++id) flight.join(3000 + id, "c", 0, 3);
  log = read_flight(flight.ring());
  REQUIRE(log.others.size() == 5);
  CHECK(log.others[0].id == 2000);
  CHECK(log.others[0].rooted == 7);
}

TEST_CASE("a ring that says nonsense of its communicators is read, and recorded into") {
  const auto segment = new_segment();
  Flight flight(segment, 0, words);
  segment->flight(0).others_used.store(~std::uint32_t{0});
  for (std::uint64_t id = 1; id <= FlightRing::groups_max + 1; ++id) flight.join(id, "c", 0, 1);
  CHECK(read_flight(flight.ring()).others.size() == 1);
}

TEST_CASE("who is killed leaves its last calls behind, and who reads them sees each whole") {
  const auto segment = new_segment();
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    Flight flight(segment, 1, words);
    const auto world = flight.join(77, "world", 1, 2);
    for (std::uint64_t i = 1;; ++i) {
      Flight::Call call = all_reduce(i);
      call.count = call.argument = i;
      Flight::Entry(flight, world, call, "child.cpp", 9).done();
      if (i == 100000 && ::write(ready[1], "x", 1) != 1) ::_exit(1);
    }
  }
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  for (int i = 0; i < 2000; ++i) {
    for (const auto& call : read_flight(segment->flight(1)).calls) {
      REQUIRE(call.count == call.sequence);
      REQUIRE(call.argument == call.sequence);
      REQUIRE(call.number == call.sequence);
    }
  }
  ::kill(child, SIGKILL);
  CHECK(::waitpid(child, nullptr, 0) == child);
  ::close(ready[0]);
  ::close(ready[1]);
  const auto log = read_flight(segment->flight(1));
  CHECK(log.pid == child);
  CHECK(log.calls.size() >= FlightRing::records_max - 1);
  CHECK(FlightNames{segment->flight(1)}.site(log.calls.back()) == "child.cpp:9");
  CHECK_FALSE(read_flight(segment->flight(0)).ready);
}

TEST_CASE("who is stopped is told from who runs and from who is gone") {
  const auto segment = new_segment();
  int ready[2];
  REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const Flight flight(segment, 1, words);
    if (::write(ready[1], "x", 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  char byte = 0;
  CHECK(::read(ready[0], &byte, 1) == 1);
  CHECK_FALSE(is_stopped(read_flight(segment->flight(1))));
  ::kill(child, SIGSTOP);
  CHECK(::waitpid(child, nullptr, WUNTRACED) == child);
  CHECK(is_stopped(read_flight(segment->flight(1))));
  ::kill(child, SIGKILL);
  CHECK(::waitpid(child, nullptr, 0) == child);
  CHECK_FALSE(is_stopped(read_flight(segment->flight(1))));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("threads of a rank record at the same time") {
  Flight flight(nullptr, -1, words);
  constexpr int threads = 4;
  constexpr std::uint64_t calls = 5000;
  {
    std::vector<std::jthread> running;
    for (int t = 0; t < threads; ++t) {
      running.emplace_back([&flight, t] {
        const auto place = flight.join(static_cast<std::uint64_t>(t) + 1, "t", 0, 1);
        for (std::uint64_t i = 1; i <= calls; ++i) {
          Flight::Entry entry(flight, place, all_reduce(i), "t.cpp", static_cast<int>(i % 40));
          const Flight::Waiting waiting(&entry, all_reduce(i), t);
          entry.done();
        }
        flight.leave(place);
      });
    }
    for (int i = 0; i < 200; ++i) {
      for (const auto& wait : read_flight(flight.ring()).waits) REQUIRE(wait.call.op == 2);
    }
  }
  const auto log = read_flight(flight.ring());
  CHECK(log.begun == threads * calls);
  CHECK(log.waits.empty());
}

TEST_CASE(
    "a thread that records alone is favoured until another one records, and no call is lost") {
  if (!allow_remote_barriers()) return;  // Where the kernel has none nobody is favoured.
  Flight::favour_one_thread();
  Flight flight(nullptr, -1, words), of_another_mesh(nullptr, -1, words);
  constexpr std::uint64_t calls = 5000;
  const auto record = [](Flight& to, const Flight::Place& place) {
    for (std::uint64_t i = 1; i <= calls; ++i) {
      Flight::Entry(to, place, all_reduce(i), "t.cpp", 1).done();
    }
  };
  const auto place = flight.join(1, "t", 0, 1), another_place = of_another_mesh.join(1, "t", 0, 1);
  record(flight, place);
  record(of_another_mesh, another_place);
  CHECK(read_flight(flight.ring()).begun == calls);
  CHECK(read_flight(of_another_mesh.ring()).begun == calls);
  {
    std::jthread first([&] { record(flight, place); }), second([&] { record(flight, place); });
  }
  record(flight, place);
  CHECK(read_flight(flight.ring()).begun == 4 * calls);
  const auto log = read_flight(flight.ring());
  REQUIRE(log.calls.size() == FlightRing::records_max);
  CHECK(log.calls.back().number == 4 * calls);
}
