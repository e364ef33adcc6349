// Ranks that prove to each other that they know the job's key, and who tries to pass for one.
#include "collectives/transport/tcp/proof.hpp"

#include "collectives/call/core/flight_words.hpp"
#include "collectives/transport/links.hpp"
#include "runtime/base/deadline.hpp"
#include "tests/support/ranks.hpp"

#include <dlaunch/dlaunch.hpp>

#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>
#include <sys/socket.h>

using namespace dlaunch;
using namespace dlaunch::transport;
using namespace std::chrono_literals;
using testing::FakeMembership;
using testing::run_ranks;
using Progress = Acceptance::Verdict;

namespace {

Key key(int number) {
  std::array<std::byte, Key::size> bytes{};
  bytes.fill(static_cast<std::byte>(number));
  return Key(bytes);
}
Nonce nonce(int number) {
  Nonce bytes{};
  bytes.fill(static_cast<std::byte>(number));
  return bytes;
}
Hello hello(int rank, bool proves = true) {
  Hello one;
  one.job = 7;
  one.epoch = 3;
  one.rank = rank;
  one.size = 4;
  one.proves = proves ? 1 : 0;
  return one;
}
BytesView bytes_of(const Hello& one) { return std::as_bytes(std::span(&one, 1)); }

/// Feeds all of it, in pieces as they are wanted; the verdict, and what was answered.
Progress feed(Acceptance& acceptance, BytesView bytes, Bytes* answer = nullptr) {
  Bytes ignored;
  Progress verdict = Progress::more;
  while (!bytes.empty() && verdict == Progress::more) {
    const auto part = bytes.first(std::min(bytes.size(), acceptance.wanted()));
    bytes = bytes.subspan(part.size());
    verdict = acceptance.feed(part, answer != nullptr ? *answer : ignored);
  }
  return verdict;
}

/// Rank 1 comes to rank 0.
struct Arrival {
  Acceptance acceptance{hello(0), &own, nonce(9)};
  static inline const Key own = key(1);
  Bytes challenge;

  Progress come(const Hello& as, const Nonce& with) {
    if (const Progress v = feed(acceptance, bytes_of(as)); v != Progress::more) return v;
    return feed(acceptance, with, &challenge);
  }
};

std::vector<std::shared_ptr<FakeMembership>> members(std::vector<std::optional<Key>> keys) {
  std::vector<std::shared_ptr<FakeMembership>> all;
  for (auto& one : keys) all.push_back(std::make_shared<FakeMembership>(std::move(one)));
  return all;
}

/// Rank 0 of four, which nobody joins but the test; its address.
struct LonelyMesh {
  std::shared_ptr<LocalStore> store = std::make_shared<LocalStore>();
  Links mesh{world(), flight_words()};

  World world() const {
    WorldInfo info;
    info.size = info.local_size = 4;
    info.job = "test";
    return World(info, store, std::make_shared<FakeMembership>(key(1)));
  }
  unique_fd connect() const {
    const std::string at = text();
    const auto port = static_cast<std::uint16_t>(std::stoi(at.substr(at.rfind(':') + 1)));
    return connect_tcp(resolve("127.0.0.1", port).front(), Clock::now() + 20s);
  }
  std::string text() const {
    const auto address = store->get("mesh/0");
    return std::string(as_text(*address));
  }
  bool until(const std::function<bool()>& holds) {
    const auto deadline = Clock::now() + 20s;
    const auto lock = mesh.lock();
    while (!holds() && Clock::now() < deadline) mesh.step(Clock::now() + 10ms);
    return holds();
  }
  bool strangers(std::uint64_t count) {
    return until([&] { return mesh.strangers() == count; });
  }
  /// As a rank would, with this key; what the mesh answered last was its challenge.
  void join(const unique_fd& socket, int rank, const Key& with) {
    Meeting meeting;
    meeting.hello = hello(rank);
    meeting.hello.job = text_hash("test");
    meeting.hello.epoch = 0;
    meeting.connector_nonce = nonce(5);
    send(socket, bytes_of(meeting.hello));
    send(socket, meeting.connector_nonce);
    Bytes challenge(challenge_bytes);
    std::size_t got = 0;
    CHECK(until([&] {
      const auto n =
          ::recv(socket.get(), challenge.data() + got, challenge.size() - got, MSG_DONTWAIT);
      if (n > 0) got += static_cast<std::size_t>(n);
      return got == challenge.size();
    }));
    std::copy_n(challenge.begin(), sizeof(Nonce), meeting.acceptor_nonce.begin());
    send(socket, connector_mac(with, meeting));
  }
  static void send(const unique_fd& socket, BytesView bytes) {
    CHECK(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
  }
  bool closed(const unique_fd& socket) {
    return until([&] {
      std::array<std::byte, 256> rest{};
      const auto n = ::recv(socket.get(), rest.data(), rest.size(), MSG_DONTWAIT);
      return n == 0 || (n < 0 && errno == ECONNRESET);
    });
  }
};

}  // namespace

TEST_CASE("both ends prove the key, however the bytes are cut") {
  for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}}) {
    Meeting meeting{hello(1), 0, 0, nonce(5), {}};
    Bytes flight(bytes_of(meeting.hello).begin(), bytes_of(meeting.hello).end());
    flight.insert(flight.end(), meeting.connector_nonce.begin(), meeting.connector_nonce.end());
    Acceptance acceptance(hello(0), &Arrival::own, nonce(9));
    Bytes challenge;
    for (std::size_t at = 0; at < flight.size();) {
      const std::size_t part = std::min({piece, acceptance.wanted(), flight.size() - at});
      CHECK(acceptance.feed(BytesView(flight).subspan(at, part), challenge) == Progress::more);
      at += part;
    }
    const auto answer = answer_to(challenge, key(1), meeting);
    REQUIRE(answer);
    CHECK(feed(acceptance, *answer) == Progress::admitted);
    CHECK(acceptance.rank() == 1);
  }
}

TEST_CASE("a wrong key proves nothing, to either end") {
  Arrival arrival;
  REQUIRE(arrival.come(hello(1), nonce(5)) == Progress::more);
  Meeting meeting{hello(1), 0, 0, nonce(5), nonce(9)};
  CHECK_FALSE(answer_to(arrival.challenge, key(2), meeting));
  CHECK(feed(arrival.acceptance, connector_mac(key(2), meeting)) == Progress::refused);
}

TEST_CASE("a recorded proof is of no use with another nonce, rank, epoch or mesh") {
  const Meeting recorded{hello(1), 0, 0, nonce(5), nonce(8)};
  const Mac proof = connector_mac(key(1), recorded);
  Arrival arrival;
  REQUIRE(arrival.come(recorded.hello, recorded.connector_nonce) == Progress::more);
  CHECK(feed(arrival.acceptance, proof) == Progress::refused);

  const Meeting now{hello(1), 0, 0, nonce(5), nonce(9)};
  for (int field = 0; field < 6; ++field) {
    Meeting other = now;
    if (field == 0) other.hello.rank = 2;
    if (field == 1) other.hello.epoch = 2;
    if (field == 2) other.hello.mesh = 1;
    if (field == 3) other.hello.job = 8;
    if (field == 4) other.acceptor = 3;
    if (field == 5) other.connector_nonce = nonce(6);
    Arrival again;
    REQUIRE(again.come(now.hello, now.connector_nonce) == Progress::more);
    CAPTURE(field);
    CHECK(feed(again.acceptance, connector_mac(key(1), other)) == Progress::refused);
  }
}

TEST_CASE("a mirror proves nothing") {
  // Rank 0's answer is sent back to it.
  Arrival arrival;
  REQUIRE(arrival.come(hello(1), nonce(5)) == Progress::more);
  CHECK(feed(arrival.acceptance, BytesView(arrival.challenge).subspan(sizeof(Nonce))) ==
        Progress::refused);
  // Rank 0 connects to the attacker, whom it takes for rank 1; the attacker lets rank 0 itself
  // answer, by coming to it as rank 1 with rank 0's own nonce.
  const Meeting outgoing{hello(0), 1, 0, nonce(6), {}};
  Arrival oracle;
  REQUIRE(oracle.come(hello(1), outgoing.connector_nonce) == Progress::more);
  CHECK_FALSE(answer_to(oracle.challenge, key(1), outgoing));
}

TEST_CASE("a Hello that is not of this mesh is refused before anything is proved") {
  const auto refused = [](const Hello& theirs, const Key* own) {
    Acceptance acceptance(hello(0, own != nullptr), own, nonce(9));
    Bytes answer;
    const bool no = feed(acceptance, bytes_of(theirs), &answer) == Progress::refused;
    return no && answer.empty();
  };
  for (const int rank : {-1, 0, 4, 1 << 30}) CHECK(refused(hello(rank), &Arrival::own));
  CHECK(refused(hello(1, false), &Arrival::own));  // Asks to do without.
  CHECK(refused(hello(1, true), nullptr));
  Hello other = hello(1);
  other.epoch = 2;
  CHECK(refused(other, &Arrival::own));
  other = hello(1);
  other.magic = 0;
  CHECK(refused(other, &Arrival::own));
}

TEST_CASE("ranks with the key work as ever") {
  const auto outcomes = run_ranks(
      4,
      [](const World& world) {
        Communicator comm(world);
        std::vector<std::int64_t> x(5000, comm.rank());
        for (int i = 0; i < 5; ++i) comm.all_reduce(x);
        CHECK(x[0] == 6 * 4 * 4 * 4 * 4);
        Communicator second(world);
        second.barrier();
      },
      members({key(1), key(1), key(1), key(1)}));
  for (const auto& outcome : outcomes) CHECK_MESSAGE(outcome.ok(), outcome.text);
}

TEST_CASE("a rank with another key, or none, is named") {
  if (testing::ranks_share_memory()) return;  // Which they were given by whoever knows the key.
  std::optional<Key> odd;
  SUBCASE("another") { odd = key(2); }
  SUBCASE("none") {}
  const auto outcomes = run_ranks(
      2,
      [](const World& world) {
        Communicator comm(world);
        comm.set_timeout(20s);
        comm.barrier();
      },
      members({key(1), odd}));
  // The first to find out leaves, and the other hears of that instead of seeing a wrong proof.
  const bool wrong = outcomes[0].mentions("it did not prove to know the job's key");
  const bool left = outcomes[0].mentions("before both sides had proved the job's key");
  CHECK_MESSAGE((wrong || left), outcomes[0].text);
  CHECK_FALSE(outcomes[1].ok());
}

TEST_CASE("strangers are closed and counted, and a rank gets in all the same") {
  LonelyMesh lonely;
  const unique_fd silent = lonely.connect();
  CHECK(lonely.until([&] { return true; }));
  const unique_fd garbage = lonely.connect();
  LonelyMesh::send(garbage, Bytes(200, std::byte{'x'}));
  CHECK(lonely.closed(garbage));
  CHECK(lonely.mesh.strangers() == 1);

  const unique_fd wrong = lonely.connect();
  lonely.join(wrong, 1, key(2));
  CHECK(lonely.closed(wrong));
  CHECK(lonely.mesh.strangers() == 2);

  const unique_fd right = lonely.connect();
  lonely.join(right, 1, key(1));
  const unique_fd twin = lonely.connect();
  lonely.join(twin, 1, key(1));  // It knows the key, but rank 1 is here already.
  CHECK(lonely.closed(twin));
  CHECK(lonely.mesh.strangers() == 3);
  CHECK(lonely.mesh.end_of(1) == nullptr);
  // The silent one goes when its time is over.
  CHECK(lonely.closed(silent));
  CHECK(lonely.strangers(4));
  CHECK(lonely.mesh.end_of(1) == nullptr);
}

TEST_CASE("a flood of strangers does not keep a rank out") {
  LonelyMesh lonely;
  std::vector<unique_fd> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(lonely.connect());
  const unique_fd right = lonely.connect();
  lonely.join(right, 2, key(1));
  CHECK(lonely.until([&] { return lonely.mesh.strangers() >= 45; }));
  CHECK_FALSE(lonely.mesh.end_of(2) != nullptr);
  right.get();
}
