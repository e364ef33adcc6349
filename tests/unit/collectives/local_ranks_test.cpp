// Ranks of one node beside ranks that share no memory with them; sleeping, and dying in
// mid-message.
#include "collectives/transport/shm/rings.hpp"
#include "tests/support/outcomes.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <atomic>
#include <csignal>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace dlaunch;
using namespace std::chrono_literals;
using testing::check_all;
using testing::FakeMembership;
using testing::require;
using testing::run_ranks;

namespace {

using Memberships = std::vector<std::shared_ptr<FakeMembership>>;

std::shared_ptr<Segment> segment_of(std::vector<std::int32_t> world_ranks, bool crowded = false) {
  SegmentPlan plan;
  plan.world_ranks = std::move(world_ranks);
  plan.oversubscribed = crowded;
  plan.arena_bytes = 64u << 20;
  return Segment::create(plan);
}

/// One for each rank; what it shares may be nothing.
Memberships memberships_of(const std::vector<std::shared_ptr<Segment>>& segments) {
  Memberships memberships;
  for (const auto& segment : segments) {
    memberships.push_back(std::make_shared<FakeMembership>());
    if (segment) memberships.back()->share(segment);
  }
  return memberships;
}

/// A thread of this process.
bool is_asleep(int thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const auto name_ends = stat.rfind(')');
  return name_ends + 2 < stat.size() && stat[name_ends + 2] == 'S';
}

/// Everybody sends to everybody, and takes what comes from whomever.
void everybody_to_everybody(Communicator& comm, std::size_t bytes, int rounds) {
  std::vector<std::uint8_t> out(bytes, static_cast<std::uint8_t>(comm.rank()));
  std::vector<int> came(static_cast<std::size_t>(comm.size()));
  for (int round = 0; round < rounds; ++round) {
    std::vector<Work> sent;
    for (int to = 0; to < comm.size(); ++to) {
      if (to != comm.rank()) sent.push_back(comm.isend(out, to, {.tag = round}));
    }
    for (int other = 1; other < comm.size(); ++other) {
      std::vector<std::uint8_t> in(bytes);
      const Received what = comm.recv(in, any_source, {.tag = round});
      const std::vector<std::uint8_t> expected(bytes, static_cast<std::uint8_t>(what.source));
      require(in == expected, "a message differs");
      ++came[static_cast<std::size_t>(what.source)];
    }
    for (Work& work : sent) work.wait();
  }
  for (int other = 0; other < comm.size(); ++other) {
    require(came[static_cast<std::size_t>(other)] == (other == comm.rank() ? 0 : rounds),
            "a rank was heard too often, or not often enough");
  }
}

}  // namespace

TEST_CASE("ranks of two nodes and one that shares nothing take from anybody") {
  for (const std::size_t bytes : {0U, 8U, 1000U, 400000U}) {
    const auto a = segment_of({0, 2}), b = segment_of({3, 1});
    check_all(run_ranks(
        5,
        [&](const World& world) {
          Communicator comm(world);
          comm.set_timeout(60s);
          everybody_to_everybody(comm, bytes, 20);
        },
        memberships_of({a, b, a, b, nullptr})));
  }
}

TEST_CASE("a message that comes while a rank reads its losses is not slept over") {
  const auto segment = segment_of({0, 1});
  const auto memberships = memberships_of({segment, segment});
  testing::Event reads, sent;
  std::atomic<bool> waits = false, received = false;
  memberships[0]->at_reading = [&] {
    if (!waits.exchange(false)) return;
    reads.set();
    sent.wait();
  };
  check_all(run_ranks(
      2,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        comm.barrier();
        int value = 0;
        if (comm.rank() == 0) {
          waits = true;
          comm.recv(value, any_source);
          received = true;
          return;
        }
        require(reads.wait(), "the losses were not read");
        comm.send(value, 0);
        sent.set();
        bool slept = false;
        while (!received) {
          const bool is_asleep = segment->rank(0).asleep.load() != 0;
          slept = slept || (is_asleep && !received);
        }
        require(!slept, "it went to sleep though its message had come");
      },
      memberships));
}

TEST_CASE("a rank that could not map its node's segment is reached all the same") {
  const auto segment = segment_of({0, 1, 2});
  check_all(run_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        everybody_to_everybody(comm, 5000, 10);
      },
      memberships_of({segment, nullptr, segment})));
}

TEST_CASE("many more ranks than processors exchange at once") {
  std::vector<std::int32_t> ranks;
  for (int rank = 0; rank < 12; ++rank) ranks.push_back(rank);
  const auto segment = segment_of(ranks, true);
  check_all(run_ranks(
      12,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        everybody_to_everybody(comm, 20000, 10);
      },
      memberships_of(std::vector<std::shared_ptr<Segment>>(12, segment))));
}

TEST_CASE("a second communicator made from a world does not disturb the first") {
  const auto segment = segment_of({0, 1});
  check_all(run_ranks(
      2,
      [&](const World& world) {
        Communicator one(world), two(world, "two");
        one.set_timeout(60s);
        two.set_timeout(60s);
        for (int i = 0; i < 20; ++i) {
          everybody_to_everybody(one, 100, 1);
          everybody_to_everybody(two, 300, 1);
        }
      },
      memberships_of({segment, segment})));
}

TEST_CASE("a root goes some small broadcasts ahead, and overwrites nothing that is to be read") {
  constexpr int ahead = 4;
  bool crowded = false;
  SUBCASE("a processor for each") {}
  SUBCASE("more ranks than processors") { crowded = true; }
  const auto segment = segment_of({0, 1, 2}, crowded);
  testing::Event is_ahead;
  check_all(run_ranks(
      3,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        comm.barrier();
        std::vector<int> data(1);
        for (int i = 0; i < ahead; ++i) {
          if (comm.rank() == 0) data[0] = i;
          if (comm.rank() != 0 && i == 0) require(is_ahead.wait(), "the root waits for the others");
          comm.broadcast(data, 0);
          require(data[0] == i, "a broadcast differs");
        }
        if (comm.rank() == 0) is_ahead.set();
        // The same choices on all ranks; how fast each goes is its own.
        std::mt19937 choices(7), pace(static_cast<unsigned>(comm.rank()));
        for (int i = 0; i < 3000; ++i) {
          const int root = choices() % 8 == 0 ? static_cast<int>(choices() % 3) : 0;
          const bool is_long = choices() % 16 == 0;
          std::vector<int> values(is_long ? 100 : 1 + choices() % 30);
          if (comm.rank() == root) std::iota(values.begin(), values.end(), i);
          comm.broadcast(values, root);
          for (std::size_t at = 0; at < values.size(); ++at) {
            require(values[at] == i + static_cast<int>(at), "a broadcast differs");
          }
          if (choices() % 16 == 0) {
            data[0] = i + comm.rank();
            comm.all_reduce(data);
            require(data[0] == 3 * i + 3, "a sum differs");
          }
          if (pace() % 32 == 0) std::this_thread::yield();
        }
      },
      memberships_of({segment, segment, segment})));
}

TEST_CASE("a call that waits for all tells of broadcasts before it that had other roots") {
  const auto segment = segment_of({0, 1});
  const auto outcomes = run_ranks(
      2,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        comm.barrier();
        std::vector<int> data(1);
        comm.broadcast(data, comm.rank());  // Each is its own root, and waits for nobody.
        comm.broadcast(data, 0);
        comm.barrier();
      },
      memberships_of({segment, segment}));
  for (const auto& outcome : outcomes) {
    CHECK(outcome.code == Errc::mismatch);
    CHECK_MESSAGE(outcome.mentions("broadcast #2 (i32, 1 element, root 1)"), outcome.text);
  }
}

TEST_CASE("a rank that waits for long goes to sleep, and wakes when it is written to") {
  const auto segment = segment_of({0, 1});
  // If the name of its bell is taken, nobody can ring, it does not ask for that, and it looks again
  // from time to time.
  std::optional<Wakeup> taken;
  std::atomic<int> thread{0};
  SUBCASE("by its bell") {}
  SUBCASE("without a bell") { taken.emplace(segment, 0, 0); }
  check_all(run_ranks(
      2,
      [&](const World& world) {
        Communicator comm(world);
        comm.set_timeout(60s);
        if (comm.rank() == 0) thread = ::gettid();
        const auto sleeps = [&] {
          return taken ? thread != 0 && is_asleep(thread) : segment->rank(0).asleep.load() != 0;
        };
        for (int i = 0; i < 20; ++i) {
          std::vector<int> data{i};
          if (comm.rank() == 0) {
            comm.recv(data, 1);
            require(data[0] == i, "the message differs");
            comm.send(data, 1);
          } else {
            const auto deadline = Clock::now() + 30s;
            bool asleep = false;
            while (!(asleep = sleeps()) && Clock::now() < deadline) std::this_thread::yield();
            require(asleep, "it does not sleep");
            require(!taken || segment->rank(0).asleep.load() == 0, "it asks to be rung");
            comm.send(data, 0);
            comm.recv(data, 0);
          }
        }
      },
      memberships_of({segment, segment})));
}

TEST_CASE("who writes to a rank that has destroyed its communicator learns of it") {
  const auto segment = segment_of({0, 1});
  testing::Event gone;
  const auto outcomes = run_ranks(
      2,
      [&](const World& world) {
        if (world.rank() == 1) {
          {
            Communicator comm(world);
            std::vector<int> data(1);
            comm.recv(data, 0);
            comm.send(data, 0);
          }
          return gone.set();
        }
        Communicator comm(world);
        comm.set_timeout(60s);
        std::vector<int> data(1);
        comm.send(data, 1);
        require(gone.wait(), "it did not end");
        comm.recv(data, 1);  // The data that it had sent is there.
        std::vector<std::byte> more(4u << 20);
        comm.send(more, 1);
      },
      memberships_of({segment, segment}));
  CHECK_MESSAGE(outcomes[1].ok(), outcomes[1].text);
  CHECK(outcomes[0].code == Errc::peer_lost);
  CHECK_MESSAGE(outcomes[0].mentions("it closed the connection"), outcomes[0].text);
}

TEST_CASE("a rank that leaves without ever having written is missed by those that wait for it") {
  const auto segment = segment_of({0, 1, 2});
  testing::Event gone;
  const char* call = nullptr;
  bool waits_first = false;
  SUBCASE("recv") { call = "recv"; }
  SUBCASE("recv, which waits already") { call = "recv", waits_first = true; }
  SUBCASE("probe") { call = "probe"; }
  SUBCASE("probe, which waits already") { call = "probe", waits_first = true; }
  SUBCASE("recv from any") { call = "any"; }
  SUBCASE("recv from any, which waits already") { call = "any", waits_first = true; }
  SUBCASE("barrier") { call = "barrier"; }
  SUBCASE("barrier, which waits already") { call = "barrier", waits_first = true; }
  const auto outcomes = run_ranks(
      3,
      [&](const World& world) {
        std::optional<Communicator> comm(world);
        if (world.rank() > 0) {
          const auto deadline = Clock::now() + 30s;
          while (waits_first && segment->rank(0).asleep.load() == 0 && Clock::now() < deadline)
            std::this_thread::yield();
          comm.reset();
          return world.rank() == 1 ? gone.set() : void();
        }
        require(waits_first || gone.wait(), "it did not end");
        comm->set_timeout(60s);
        std::vector<int> data(1);
        if (call == std::string("probe")) static_cast<void>(comm->probe(1));
        if (call == std::string("barrier")) comm->barrier();
        comm->recv(data, call == std::string("any") ? any_source : 1);
      },
      memberships_of({segment, segment, segment}));
  CHECK(outcomes[0].code == Errc::peer_lost);
  CHECK_MESSAGE(outcomes[0].mentions("it destroyed its communicator"), outcomes[0].text);
}

namespace {

/// The process of rank 1: it writes one message, and is killed in the middle of the next.
[[noreturn]] void write_and_die(const std::shared_ptr<Segment>& segment, std::size_t bytes,
                                std::uint64_t communicator) {
  using namespace transport;
  Wakeup bell(segment, 1, 0);
  RingWriter writer(*segment, bell, 0, 0, 1);
  const std::vector<std::byte> data(bytes, std::byte{7});
  Fingerprint call;
  call.op = Op::send;
  call.dtype = DType::u8;
  call.count = bytes;
  Header header = make_header(Kind::message, communicator, call, bytes);
  std::size_t sent = 0;
  while (sent < sizeof header + bytes) writer.write_some(header, data, sent);
  // More than there is room for, however much was read by now.
  const std::vector<std::byte> longer(Ring::capacity * 2, std::byte{8});
  call.count = longer.size();
  header = make_header(Kind::message, communicator, call, longer.size());
  sent = 0;
  writer.write_some(header, longer, sent);
  ::kill(::getpid(), SIGKILL);
  ::_exit(1);
}

}  // namespace

TEST_CASE("what a process wrote before it was killed in mid-message arrives, then its loss") {
  constexpr std::size_t bytes = Ring::capacity * 3 / 4;
  const auto segment = segment_of({0, 1});
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) write_and_die(segment, bytes, 1);
  const auto membership = std::make_shared<FakeMembership>();
  membership->share(segment);
  WorldInfo info;
  info.size = info.local_size = 2;
  const World world(info, std::make_shared<LocalStore>(), membership);
  Communicator comm(world);
  comm.set_timeout(60s);
  std::vector<std::uint8_t> first(bytes), second(Ring::capacity * 2);
  comm.recv(first, 1);
  CHECK(first == std::vector<std::uint8_t>(bytes, 7));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  membership->lose({1, "here", "killed by SIGKILL"});
  try {
    comm.recv(second, 1);
    FAIL("half a message was taken for a whole one");
  } catch (const Error& error) {
    CHECK(error.code() == Errc::peer_lost);
    CHECK_MESSAGE(std::string(error.what()).find("killed by SIGKILL") != std::string::npos,
                  error.what());
  }
}

TEST_CASE("a rank that has not made the communicator of a call is told as that") {
  const auto segment = segment_of({0, 1});
  testing::Event told;
  check_all(run_ranks(
      2,
      [&](const World& world) {
        Communicator comm(world);
        comm.barrier();
        if (comm.rank() == 1) return require(told.wait(), "rank 0 has told nothing");
        Communicator extra(world, "extra");
        const auto error = testing::error_of([&] { extra.barrier({.timeout = 50ms}); });
        told.set();
        const std::string text = error ? error->what() : "";
        CHECK_MESSAGE(text.find("; it has not made this communicator: do all ranks make their "
                                "communicators in the same order?)") != text.npos,
                      text);
      },
      memberships_of({segment, segment})));
}
