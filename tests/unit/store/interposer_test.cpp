// Somebody sits between a client and a server that share a secret: they record, send again, change,
// drop, swap, and lead one connection into another.
#include "tests/support/interposer.hpp"

#include "tests/support/guarded_server.hpp"

#include <algorithm>
#include <array>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

using Said = Interposer::Said;
using Outcome = std::pair<Errc, std::string>;

/// Joins, and adds 1 to a number twice.
Outcome add_at(const Address& at) {
  return failure([&] {
    store::Client client(connect_tcp(at, soon()), GuardedServer::with("train", key("train")),
                         nullptr, soon());
    client.add("n", 1);
    client.add("n", 1);
  });
}

/// It failed for a reason that tells of the secret, or of bytes that were changed.
bool is_told(const Outcome& outcome) {
  const auto says = [&](const char* what) {
    return outcome.second.find(what) != std::string::npos;
  };
  return says("wrong secret, or no such job there") || says("was changed on the way") ||
         says("closed the connection");
}

bool is_logged(GuardedServer& server) {
  const auto log = server.log();
  return std::ranges::any_of(log, [](const std::string& line) {
    return line.find("did not prove a job's secret") != std::string::npos ||
           line.find("was changed on the way") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("a recorded session is of no use, whichever side it is sent to") {
  GuardedServer server;
  store::Client insider = server.client_with("train", key("train"));
  Interposer between(server.native_address);
  CHECK(add_at(between.address()).second == "no error");
  CHECK(text(insider.get("n")) == "2");
  const Bytes by_client = between.recorded(0, true), by_server = between.recorded(0, false);
  REQUIRE(by_client.size() > 400);

  SUBCASE("to the server") {
    const unique_fd socket = server.connect();
    say(socket, by_client);
    CHECK(all_of(socket).has_value());
    CHECK(server.unauthenticated(1));
    CHECK(is_logged(server));
  }
  SUBCASE("to the server, beginning after the handshake") {
    const unique_fd socket = server.connect();
    say(socket, BytesView(by_client).subspan(by_client.size() - 200));
    CHECK(all_of(socket).has_value());
  }
  SUBCASE("to a client") {
    const unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    std::jthread replaying([&] {
      const unique_fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(peer, by_server);
      all_of(peer);
    });
    const auto outcome = add_at(local_address(listener.get()));
    CHECK(is_told(outcome));
  }
  CHECK(text(insider.get("n")) == "2");
  CHECK(insider.add("n", 1) == 3);
}

TEST_CASE("what is changed on the way ends the connection, and both sides say so") {
  GuardedServer server;
  store::Client insider = server.client_with("train", key("train"));
  std::optional<Bytes> kept;
  Interposer::Hand hand;
  const auto change = [](Bytes bytes) {
    bytes.at(bytes.size() / 2) ^= std::byte{1};
    return bytes;
  };
  SUBCASE("a byte of the client's first words") {
    hand = [&](const Said& said) {
      const bool now = said.by_client && said.flight == 0;
      return std::pair{said.connection, now ? change(said.bytes) : said.bytes};
    };
  }
  SUBCASE("a byte of the server's answer") {
    hand = [&](const Said& said) {
      const bool now = !said.by_client && said.flight == 0;
      return std::pair{said.connection, now ? change(said.bytes) : said.bytes};
    };
  }
  SUBCASE("a byte of what follows the handshake") {
    hand = [&](const Said& said) {
      const bool now = said.by_client && said.flight == 1;
      return std::pair{said.connection, now ? change(said.bytes) : said.bytes};
    };
  }
  SUBCASE("a byte is left out") {
    hand = [](const Said& said) {
      Bytes bytes = said.bytes;
      if (said.by_client && said.flight == 1) bytes.erase(bytes.begin() + 40);
      return std::pair{said.connection, bytes};
    };
  }
  SUBCASE("something is said twice") {
    hand = [](const Said& said) {
      Bytes bytes = said.bytes;
      if (said.by_client && said.flight == 1) {
        bytes.insert(bytes.end(), said.bytes.begin(), said.bytes.end());
      }
      return std::pair{said.connection, bytes};
    };
  }
  SUBCASE("what was said before comes again, in the place of a request") {
    hand = [&](const Said& said) {
      if (said.by_client && said.flight == 1) kept = said.bytes;
      const bool now = said.by_client && said.flight == 2;
      return std::pair{said.connection, now ? kept.value() : said.bytes};
    };
  }
  Interposer between(server.native_address, hand);
  const auto outcome = add_at(between.address());
  CAPTURE(outcome.second);
  CHECK(is_told(outcome));
  CHECK(server.unauthenticated(1));
  CHECK(is_logged(server));
  // No more was done than what was said before it.
  CHECK(insider.add("n", 1) <= 2);
}

TEST_CASE("what the server says to one client is of no use to another") {
  GuardedServer server;
  Interposer between(server.native_address, [](const Said& said) {
    return std::pair{said.by_client ? said.connection : 1 - said.connection, said.bytes};
  });
  // Both are connected before either speaks.
  std::array<unique_fd, 2> sockets{connect_tcp(between.address(), soon()),
                                   connect_tcp(between.address(), soon())};
  std::array<Outcome, 2> outcomes;
  std::vector<std::jthread> clients;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    clients.emplace_back([&, i] {
      outcomes[i] = failure([&] {
        store::Client client(std::move(sockets[i]), GuardedServer::with("train", key("train")),
                             nullptr, soon());
        client.add("n", 1);
      });
    });
  }
  clients.clear();
  for (const Outcome& outcome : outcomes) {
    CAPTURE(outcome.second);
    CHECK(is_told(outcome));
  }
  store::Client insider = server.client_with("train", key("train"));
  CHECK(insider.add("n", 1) == 1);
}
