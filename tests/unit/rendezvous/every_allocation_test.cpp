// Whichever allocation fails of those that a service makes for a client, and however many behind
// it: that client is served or its connection ends, the others are served, and nothing is left.
#include "runtime/store/protocol/wire.hpp"
#include "tests/support/agent_peer.hpp"
#include "tests/support/c10d_bytes.hpp"
#include "tests/support/short_memory.hpp"
#include "tests/support/short_openssl.hpp"

#include <cstdint>
#include <deque>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>
#include <poll.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace dlaunch::test;

namespace {

Key key(const std::string& job) {
  const std::string secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  return Secret::parse(as_bytes(secret), "the test").job_key(job);
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

/// A client that goes on until its connection ends; then nothing that it says or awaits counts.
class Client {
 public:
  Client(const Address& service, std::uint64_t session, const std::string& job, bool proves = false)
      : peer_(connect_tcp(service, soon())) {
    const auto began = Clock::now();
    over_ = proves && !peer_.prove(job, key(job));
    if (!over_) {
      peer_.say_hello(session, job);
      over_ = peer_.read(wire::preface_bytes).size() < wire::preface_bytes;
    }
    note_end(began);
    await(wire::Type::welcome);
  }

  template <class Message>
  void tell(const Message& message) {
    Bytes payload, out;
    message::encode(payload, message);
    wire::encode_frame(out, {0, Message::type, 0, 0, 0}, payload);
    peer_.say(out);
  }
  void say_goodbye() {
    Bytes out;
    wire::encode_frame(out, {0, wire::Type::goodbye, 0, 0, 0}, BytesView());
    peer_.say(out);
  }
  /// Until it is one of the nodes of its job, which are so many.
  void join(const std::string& node, int nodes = 1) {
    tell(impatient(node, nodes));
    await(message::Admitted::type);
  }
  template <class Message>
  std::uint64_t begin(const Message& message) {
    peer_.ask(++request_, message);
    return request_;
  }
  template <class Message>
  void ask(const Message& message) {
    await(begin(message));
  }
  /// A message of this type, or the answer to this request.
  template <class What>
  void await(What what) {
    while (!over_ && !is(next_frame(), what)) continue;
  }
  bool over() const { return over_; }
  void hang_up() { peer_.hang_up(); }

  /// Awaits an answer each, or a message. False where one of them is over, for which the other one
  /// may wait in vain.
  template <class One, class Other>
  static bool both_hear(Client& a, One one, Client& b, Other other) {
    bool a_has = false, b_has = false;
    for (const auto began = Clock::now(); !a.over_ && !b.over_ && !(a_has && b_has);) {
      pollfd wait[] = {{a.peer_.fd(), POLLIN, 0}, {b.peer_.fd(), POLLIN, 0}};
      const bool heard = ::poll(wait, 2, poll_timeout_ms(began + 9s)) > 0;
      CHECK_MESSAGE(heard, "one of two is neither served nor sent away");
      if (!heard) return false;
      if (wait[0].revents != 0) a_has = is(a.next_frame(), one) || a_has;
      if (wait[1].revents != 0) b_has = is(b.next_frame(), other) || b_has;
    }
    return !a.over_ && !b.over_;
  }

 private:
  static bool is(const wire::FrameHeader& header, wire::Type type) { return header.type == type; }
  static bool is(const wire::FrameHeader& header, std::uint64_t request) {
    return header.request == request;
  }
  wire::FrameHeader next_frame() {
    const auto began = Clock::now();
    const auto header = peer_.frame().first;
    over_ = header == wire::FrameHeader{};
    note_end(began);
    // Its job is over, or not for it.
    if (header.type == message::Finished::type || header.type == message::Refused::type) {
      over_ = true;
    }
    return header;
  }
  void note_end(Clock::time_point began) const {
    if (over_) CHECK_MESSAGE(Clock::now() < began + 9s, "it is neither served nor sent away");
  }

  RawPeer peer_;
  std::uint64_t request_ = 0;
  bool over_ = false;
};

/// A service with a job in which nothing happens, and what its clients do.
struct Trial {
  explicit Trial(bool is_guarded = false) : guarded(is_guarded) {
    if (guarded) {
      service.on_loop([](Service& s) {
        s.server().ask_for(
            {.keys = {{.key_of = [](std::string_view job) { return key(std::string(job)); }}}});
      });
    }
    witness.emplace(service.address, 1, "witness", guarded);
    witness->join("witness");
    before = open_descriptors();
  }

  using Exchange = void (*)(Trial&);
  /// Repeats the exchange, with so many allocations in a row that fail, from each one on.
  void run(Exchange exchange) {
    for (const long failures : {1, 2, 20}) {
      bool failed = true;
      for (long nth = 1; failed; ++nth) {
        REQUIRE(nth < 5000);
        INFO("the allocations from " << nth << " on failed, " << failures << " of them");
        service.on_loop([&](Service&) { run_short({nth, failures}); });
        exchange(*this);
        failed = service.on_loop([](Service&) { return have_enough(); });
        witness->ask(wire::Set{"key", as_bytes("value")});
        REQUIRE_FALSE(witness->over());
        const std::uint64_t last = next();
        Client newcomer(service.address, last, "job " + std::to_string(last), guarded);
        newcomer.join("newcomer");
        newcomer.ask(wire::Set{"key", as_bytes("value")});
        REQUIRE_FALSE(newcomer.over());
        newcomer.say_goodbye();
      }
    }
    witness->say_goodbye();
    const auto deadline = soon();
    const auto is_left = [&] {
      return !service.idle() ||
             service.on_loop([](Service& s) { return s.totals().connections; }) > 0 ||
             open_descriptors() > before;
    };
    while (is_left() && Clock::now() < deadline) std::this_thread::yield();
    CHECK(service.idle());
    CHECK(service.on_loop([](Service& s) { return s.totals().connections; }) == 0);
    // The witness is closed, and so is what it was connected to.
    CHECK(open_descriptors() <= before);
  }
  std::uint64_t next() { return ++session; }

  ServiceRules rules = [] {
    ServiceRules with_budget;
    with_budget.remember = std::chrono::milliseconds(1);
    return with_budget;
  }();
  ServiceThread service{rules};
  std::uint64_t session = 100;
  const bool guarded;  ///< The service asks for a secret.
  std::optional<Client> witness;
  std::size_t before = 0;
};

/// What an agent says all its life.
void live(Trial& trial) {
  const std::uint64_t session = trial.next();
  Client agent(trial.service.address, session, "job " + std::to_string(session));
  agent.join("n");
  agent.tell(message::Heartbeat{});
  agent.await(message::Heartbeat::type);
  agent.ask(wire::Set{"a key that is too long to lie in a string itself", as_bytes("value")});
  agent.ask(wire::Set{"large", Bytes(5000)});
  agent.ask(wire::Get{"large"});
  agent.ask(wire::Append{"large", as_bytes("tail")});
  agent.ask(wire::Add{"number", 3});
  agent.ask(wire::CompareSet{"large", as_bytes("no"), as_bytes("yes")});
  agent.ask(wire::SetLeased{"leased", as_bytes("value"), 60'000});
  agent.ask(wire::SetLeased{"leased, too", as_bytes("value"), 60'000});
  agent.begin(wire::Watch{"watched"});
  agent.ask(wire::Set{"watched", as_bytes("value")});
  agent.ask(wire::Erase{"watched"});
  agent.ask(wire::MultiSet{{"one", "two"}, {as_bytes("1"), as_bytes("2")}});
  agent.ask(wire::MultiGet{{"one", "two", "none"}});
  agent.ask(wire::List{""});
  agent.ask(wire::ListPage{"", {}});
  agent.ask(wire::Count{});
  agent.ask(wire::Push{"queue", as_bytes("value")});
  agent.ask(wire::Pop{{}, "queue"});
  agent.ask(wire::Wait{{1000}, {"it does not come"}});
  agent.ask(wire::WaitGet{{1000}, "it does not come"});
  agent.ask(wire::WaitGet{{}, "two"});
  agent.ask(wire::Barrier{"barrier", 0, 1, {}, {0}});
  agent.ask(wire::Barrier{"barrier that times out", 0, 2, {1000}, {0}});
  agent.ask(wire::AllGather{"gathered", 0, 1, {}, {0}, {as_bytes("blob")}});
  agent.begin(wire::WaitGet{{}, "never"});
  if (agent.over()) return;
  agent.tell(message::Leave{{0, 0, "it has done its work"}});
  agent.say_goodbye();
}

/// What an agent says at the least, over TLS.
void prove(Trial& trial) {
  const std::uint64_t session = trial.next();
  Client agent(trial.service.address, session, "job " + std::to_string(session), true);
  agent.join("n");
  agent.ask(wire::Set{"large", Bytes(50'000)});
  agent.ask(wire::Get{"large"});
  agent.say_goodbye();
}

/// Two nodes wait for each other, and one is lost.
void meet(Trial& trial) {
  const std::uint64_t first = trial.next(), second = trial.next();
  const std::string job = "job " + std::to_string(first);
  Client a(trial.service.address, first, job), b(trial.service.address, second, job);
  a.tell(impatient("a"));
  b.tell(impatient("b"));
  const auto admitted = message::Admitted::type;
  if (!Client::both_hear(a, admitted, b, admitted)) return;
  const auto each_waits = [&](const auto& asked, const auto& come) {
    const auto waits = a.begin(asked);
    return Client::both_hear(a, waits, b, b.begin(come));
  };
  if (!each_waits(wire::WaitGet{{}, "key"}, wire::Set{"key", as_bytes("value")})) return;
  const wire::MultiSet two{{"one", "two"}, {as_bytes("1"), as_bytes("2")}};
  if (!each_waits(wire::Wait{{}, {"one", "two"}}, two)) return;
  if (!each_waits(wire::Pop{{}, "queue"}, wire::Push{"queue", as_bytes("value")})) return;
  const auto watch = a.begin(wire::Watch{"watched"});
  a.ask(wire::Count{});  // It watches by now.
  const auto set = b.begin(wire::Set{"watched", Bytes(5000)});
  if (!Client::both_hear(a, watch, b, set)) return;
  const auto barrier = [](const char* name, int rank) {
    return wire::Barrier{name, 0, 2, {}, {rank}};
  };
  if (!each_waits(barrier("barrier", 0), barrier("barrier", 1))) return;
  const auto gather = [](int rank) {
    return wire::AllGather{"gathered", 0, 2, {}, {rank}, {as_bytes("blob")}};
  };
  if (!each_waits(gather(0), gather(1))) return;
  const auto waits = a.begin(barrier("another barrier", 0));
  b.hang_up();
  a.await(waits);
}

}  // namespace

TEST_CASE("whichever allocations fail for an agent, it is served or ends alone") {
  Trial trial;
  trial.run(live);
}

TEST_CASE("whichever allocations fail for an agent that proves the secret, it ends alone") {
  REQUIRE(fails_for_openssl);
  Trial trial(true);
  trial.run(prove);
}

TEST_CASE("whichever allocations fail for nodes that wait for each other, none waits in vain") {
  Trial trial;
  trial.run(meet);
}

TEST_CASE("whichever allocations fail as a round of more nodes than a turn has closes, all hear") {
  constexpr int nodes = 30;  // Their seats, admissions and messages are more than is done at once.
  Trial trial;
  for (const long failures : {1, 20}) {
    bool failed = true;
    for (long nth = 1; failed; nth += failures == 1 ? 3 : 7) {
      REQUIRE(nth < 5000);
      INFO("the allocations from " << nth << " on failed, " << failures << " of them");
      const std::uint64_t first = trial.next();
      std::deque<Client> crowd;
      while (crowd.size() < nodes) {
        const std::uint64_t session = crowd.empty() ? first : trial.next();
        crowd.emplace_back(trial.service.address, session, "job " + std::to_string(first));
        if (crowd.size() < nodes) {
          crowd.back().tell(impatient("n" + std::to_string(session), nodes));
          crowd.back().tell(message::Heartbeat{});
          crowd.back().await(message::Heartbeat::type);  // It has joined by now.
        }
      }
      trial.service.on_loop([&](Service&) { run_short({nth, failures}); });
      crowd.back().join("last", nodes);
      if (!crowd.back().over()) {
        for (Client& each : crowd) {
          if (&each != &crowd.back()) each.await(message::Admitted::type);
        }
      }
      failed = trial.service.on_loop([](Service&) { return have_enough(); });
      trial.witness->ask(wire::Set{"key", as_bytes("value")});
      REQUIRE_FALSE(trial.witness->over());
      for (Client& each : crowd) {
        if (!each.over()) each.say_goodbye();
      }
    }
  }
}
