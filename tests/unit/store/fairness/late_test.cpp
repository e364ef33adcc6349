// Messages to many that are made in the turns in which they are sent.
#include "tests/support/late_message.hpp"
#include "tests/support/raw_peer.hpp"
#include "tests/support/store_server.hpp"

#include <deque>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <sys/ioctl.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

struct Audience {
  Audience() {
    for (int i = 0; i < 3; ++i) {
      peers.emplace_back(server.connect()).greet();
      ids.push_back(server.host.last());
    }
  }
  /// One event that has something to say to all; to write it to the first one takes longer than the
  /// turn lasts. Then, before anybody else has a turn, `next`. Returns what had been made by then.
  template <class Next>
  std::vector<std::string> tell_all(Next next) {
    return server.on_loop([&](store::Server& s) {
      s.carry_out([&] {
        for (std::size_t i = 0; i < ids.size(); ++i) {
          s.push_late(ids[i], std::make_unique<NotedMessage>("news " + std::to_string(i), made,
                                                             i == 0 ? 20ms : 0ms));
        }
      });
      auto so_far = made;
      next(s);
      return so_far;
    });
  }
  std::string hear(std::size_t peer) { return text(peers[peer].frame().second); }

  ServerThread server;
  std::deque<RawPeer> peers;
  std::vector<store::ConnectionId> ids;
  std::vector<std::string> made;
};

bool is_answered(const RawPeer& peer) {
  int bytes = 0;
  return ::ioctl(peer.fd(), FIONREAD, &bytes) == 0 && bytes > 0;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("what there is no time to write now is written in the turns of those who are told") {
  Audience audience;
  CHECK(audience.tell_all([](store::Server&) {}) == Lines{"news 0"});
  for (std::size_t i = 0; i < 3; ++i) CHECK(audience.hear(i) == "news " + std::to_string(i));
}

TEST_CASE("what is said after a message that is still to be written comes after it") {
  Audience audience;
  audience.tell_all([&](store::Server& s) {
    s.push(audience.ids[1], wire::Type::report, as_bytes("more"));
    s.push_late(audience.ids[2], std::make_unique<NotedMessage>("later news", audience.made));
  });
  CHECK(audience.hear(1) == "news 1");
  CHECK(audience.hear(1) == "more");
  CHECK(audience.hear(2) == "news 2");
  CHECK(audience.hear(2) == "later news");
}

TEST_CASE("who is gone before its turn is told nothing, and the others are") {
  Audience audience;
  audience.tell_all([&](store::Server& s) { s.fail(audience.ids[1]); });
  CHECK(audience.hear(2) == "news 2");
  CHECK(audience.peers[1].closed_by_server());
  CHECK(audience.made == Lines{"news 0", "news 2"});
}

TEST_CASE("a job's own work goes on while others are served, and before its connections are") {
  ServerThread server;
  server.host.many_jobs = true;
  RawPeer own(server.connect()), witness(server.connect());
  own.greet(0, "busy");
  witness.greet(0, "alone");
  bool was_served = false;
  server.host.on_work = [&, until = soon()](const std::string& job) {
    was_served |= is_answered(own) || job != "busy";
    return !is_answered(witness) && Clock::now() < until;
  };
  server.on_loop([&](store::Server& s) {
    own.ask(2, wire::Set{"k", {}});
    s.go_on_in_turns("busy");
    return 0;
  });
  witness.ask(2, wire::Set{"k", {}});
  witness.answer<wire::Done>(2);
  own.answer<wire::Done>(2);
  CHECK_FALSE(was_served);
}

TEST_CASE("a job's own work that fails is over, and its connections are served") {
  ServerThread server;
  RawPeer own(server.connect());
  own.greet();
  server.host.on_work = [](const std::string&) -> bool { throw std::bad_alloc(); };
  server.on_loop([](store::Server& s) { return s.go_on_in_turns("job-1"), 0; });
  own.ask(2, wire::Set{"k", {}});
  own.answer<wire::Done>(2);
  CHECK(server.counters().failed == 1);
}

TEST_CASE("who is let go, or left by the server's end, is told first") {
  Audience audience;
  audience.tell_all([&](store::Server& s) {
    s.close(audience.ids[1]);
    s.stop();
  });
  CHECK(audience.hear(1) == "news 1");
  CHECK(audience.hear(2) == "news 2");
  CHECK(audience.peers[1].closed_by_server());
  CHECK(audience.peers[2].closed_by_server());
}
