// Agents of one host lend each other memory: all of an epoch get the same, and whoever may not have
// it, or finds no lender, has its own.
#include "rendezvous/service/node_memory.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "tests/support/skipped.hpp"

#include <cerrno>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace dlaunch::rendezvous {
namespace {

constexpr auto patience = std::chrono::seconds(20);

/// Two agents with two ranks each, on one thread.
struct Host {
  MemoryPlan plan(bool lender, std::uint64_t epoch = 3) const {
    MemoryPlan plan;
    plan.incarnation = 1;
    plan.own.job = 5;
    plan.own.epoch = epoch;
    plan.own.world_ranks = lender ? std::vector{0, 1} : std::vector{4, 5};
    plan.own.arena_bytes = 1u << 20;
    plan.common.parts = {{0, 2}, {4, 2}};
    if (!lender) plan.common.lender = name;
    return plan;
  }
  static MemoryPlan with_key(MemoryPlan plan, int key) {
    const Bytes secret(Key::size, static_cast<std::byte>(key));
    plan.key.emplace(Key::View(secret));
    return plan;
  }
  bool runs_until(const std::function<bool()>& done) {
    const auto deadline = deadline_after(patience);
    io.restart();  // It may have run out of work.
    while (!done() && Clock::now() < deadline) io.run_one_until(deadline);
    return done();
  }
  /// What the node has when it is known; null where it is not.
  Segment* of(NodeMemory& node) {
    bool known = false;
    node.when_known([&] { known = true; });
    return runs_until([&] { return known; }) ? node.segment() : nullptr;
  }
  NodeMemory::Warn warn() {
    return [this](const std::string& why, bool is_common) {
      warnings.push_back((is_common ? "common: " : "own: ") + why);
    };
  }
  /// The borrower has its own, and it was said why.
  void check_own(NodeMemory& borrower, const std::string& why) {
    const Segment* const own = of(borrower);
    REQUIRE(own != nullptr);
    CHECK(own->size() == 2);
    CHECK(own->local_of(4) == 0);
    REQUIRE(warnings.size() == 1);
    CHECK(warnings[0].find(why) != std::string::npos);
    CHECK(warnings[0].starts_with("common: "));
  }

  boost::asio::io_context io{1};
  std::vector<std::string> warnings;
  MemoryDoor door = MemoryDoor::open();
  std::string name = door.name;
};

bool hangs_up(Host& host, int fd) {
  return host.runs_until([&] {
    char byte = 0;
    errno = 0;
    return ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0 && errno != EAGAIN;
  });
}

}  // namespace

TEST_CASE("whoever asks first: all ranks of the host get the same memory") {
  for (const bool lender_first : {true, false}) {
    CAPTURE(lender_first);
    Host host;
    NodeMemory lender(host.io, std::move(host.door), host.warn());
    NodeMemory borrower(host.io, {}, host.warn());
    lender.begin(host.plan(true));
    borrower.begin(host.plan(false));
    CHECK(lender.segment() == nullptr);
    Segment* const first = host.of(lender_first ? lender : borrower);
    Segment* const second = host.of(lender_first ? borrower : lender);
    REQUIRE(first != nullptr);
    REQUIRE(second != nullptr);
    CHECK(first->id() == second->id());
    CHECK(first->size() == 4);
    CHECK(first->local_of(4) == 2);
    CHECK(host.warnings.empty());
  }
}

TEST_CASE("a node that is admitted first waits for the lender") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  lender.begin(host.plan(true, 2));
  borrower.begin(host.plan(false, 3));
  bool known = false;
  borrower.when_known([&] { known = true; });
  // The lender has heard it when it answers one that came later.
  const unique_fd later = connect_unix(host.name, deadline_after(patience));
  REQUIRE(::send(later.get(), "x", 1, MSG_NOSIGNAL) == 1);
  REQUIRE(hangs_up(host, later.get()));
  CHECK_FALSE(known);
  lender.begin(host.plan(true, 3));
  REQUIRE(host.runs_until([&] { return known; }));
  CHECK(borrower.segment()->id() == lender.segment()->id());
  CHECK(borrower.segment()->epoch() == 3);
}

TEST_CASE("every epoch has fresh memory") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  std::uint64_t before = 0;
  for (const std::uint64_t epoch : {3u, 4u}) {
    lender.begin(host.plan(true, epoch));
    borrower.begin(host.plan(false, epoch));
    CHECK(borrower.segment() == nullptr);
    REQUIRE(host.of(borrower) != nullptr);
    CHECK(borrower.segment()->id() != before);
    CHECK(borrower.segment()->id() == host.of(lender)->id());
    before = borrower.segment()->id();
  }
  CHECK(host.warnings.empty());
}

TEST_CASE("an epoch that is over for the lender: the node has its own") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  lender.begin(host.plan(true, 4));
  borrower.begin(host.plan(false, 3));
  host.check_own(borrower, "has not lent it");
}

TEST_CASE("the lender is gone: the node has its own at once") {
  Host host;
  host.door = {};
  NodeMemory borrower(host.io, {}, host.warn());
  borrower.begin(host.plan(false));
  host.check_own(borrower, "nothing listens there");
}

TEST_CASE("the lender stands still: the node has its own after a while") {
  Host host;
  NodeMemory borrower(host.io, {}, host.warn());
  borrower.begin(host.plan(false));
  host.check_own(borrower, "does not answer");
}

TEST_CASE("a node that does not know the job's key is lent nothing") {
  for (const int key : {0, 7, 8}) {
    CAPTURE(key);
    Host host;
    NodeMemory lender(host.io, std::move(host.door), host.warn());
    NodeMemory borrower(host.io, {}, host.warn());
    lender.begin(Host::with_key(host.plan(true), 7));
    borrower.begin(key == 0 ? host.plan(false) : Host::with_key(host.plan(false), key));
    if (key != 7) {
      host.check_own(borrower, "has not lent it");
      continue;
    }
    REQUIRE(host.of(borrower) != nullptr);
    CHECK(borrower.segment()->size() == 4);
    CHECK(host.warnings.empty());
  }
}

TEST_CASE("a node that is none of them is lent nothing") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  auto plan = host.plan(true);
  plan.common.parts = {{0, 2}, {6, 2}};
  lender.begin(plan);
  borrower.begin(host.plan(false));
  host.check_own(borrower, "has not lent it");
}

TEST_CASE("what was lent is for other ranks, or is no memory of ours: the node has its own") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  auto plan = host.plan(true);
  plan.own.job = 6;
  lender.begin(plan);
  borrower.begin(host.plan(false));
  host.check_own(borrower, "made for other ranks");
}

TEST_CASE("a new epoch, or the end, forgets whoever waited") {
  Host host;
  {
    NodeMemory borrower(host.io, {}, host.warn());
    borrower.begin(host.plan(false));
    borrower.when_known([] { FAIL_CHECK("of an epoch that is over"); });
    auto alone = host.plan(true, 4);
    alone.common = {};
    borrower.begin(alone);
    REQUIRE(host.of(borrower) != nullptr);
    CHECK(borrower.segment()->size() == 2);
    borrower.begin(host.plan(false, 5));
    borrower.when_known([] { FAIL_CHECK("after the end"); });
  }
  host.io.poll();
  CHECK(host.warnings.empty());
}

TEST_CASE("nothing is lent to another user, or borrowed from one") {
  if (::geteuid() != 0) return testing::skipped("only root can be another user for a moment");
  // The kernel's own call is for one thread, the library's for all.
  const auto as_stranger = [](const auto& act) {
    std::jthread([&] {
      constexpr long stranger = 65534;
      REQUIRE(::syscall(SYS_setresuid, -1L, stranger, -1L) == 0);
      act();
    }).join();
  };
  SUBCASE("an agent that asks") {
    Host host;
    NodeMemory lender(host.io, std::move(host.door), host.warn());
    NodeMemory borrower(host.io, {}, host.warn());
    lender.begin(host.plan(true));
    as_stranger([&] {
      borrower.begin(host.plan(false));
      borrower.when_known([] {});
    });
    host.check_own(borrower, "has not lent it");
    CHECK(lender.segment() == nullptr);
  }
  SUBCASE("an agent that lends") {
    Host host;
    as_stranger([&] {
      host.door = MemoryDoor::open();
      host.name = host.door.name;
    });
    NodeMemory borrower(host.io, {}, host.warn());
    borrower.begin(host.plan(false));
    host.check_own(borrower, "another user's process lends it");
  }
}

TEST_CASE("strangers change nothing") {
  Host host;
  NodeMemory lender(host.io, std::move(host.door), host.warn());
  NodeMemory borrower(host.io, {}, host.warn());
  const unique_fd silent = connect_unix(host.name, deadline_after(patience));
  for (const std::size_t bytes : {1u, 64u, 200u}) {
    const unique_fd stranger = connect_unix(host.name, deadline_after(patience));
    const std::string noise(bytes, 'x');
    REQUIRE(::send(stranger.get(), noise.data(), bytes, MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes));
    CHECK(hangs_up(host, stranger.get()));
  }
  lender.begin(host.plan(true));
  borrower.begin(host.plan(false));
  REQUIRE(host.of(borrower) != nullptr);
  CHECK(borrower.segment()->size() == 4);
}

}  // namespace dlaunch::rendezvous
