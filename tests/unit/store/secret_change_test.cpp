// A secret that takes another one's place, over real sockets.
#include "tests/support/guarded_server.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

TEST_CASE("a secret is changed under connections that stand") {
  GuardedServer server;
  const auto ask_for = [&](std::vector<store::ServerKey> keys) {
    server.on_loop([&](store::Server& s) { return s.ask_for({.keys = std::move(keys)}), 0; });
  };
  const auto by = [&](std::uint64_t number) {
    return server.on_loop([&](store::Server& s) { return s.connections_by(number); });
  };
  const store::ServerKey old{.number = 1,
                             .key_of = [](std::string_view job) { return key(std::string(job)); }};
  const store::ServerKey fresh{.number = 2, .key_of = [](std::string_view job) {
                                 return key(std::string(job), their_secret);
                               }};
  store::Client standing = server.client_with("train", key("train"));
  CHECK(by(1) == 1);

  ask_for({fresh, old});
  store::Client late = server.client_with("train", key("train"));
  store::Client modern = server.client_with("train", key("train", their_secret));
  CHECK(by(1) == 2);
  CHECK(by(2) == 1);

  store::ServerKey withdrawn = old;
  withdrawn.refusal = "this secret is not accepted here any more";
  ask_for({fresh, withdrawn});
  CHECK(server.refusal("train", key("train")) ==
        std::pair{Errc::unauthenticated,
                  std::string("joining the test's store: refused: this secret is not accepted here "
                              "any more")});
  CHECK(server.unauthenticated(1));
  CHECK(server.log().back().find("that of 'train' is not accepted any more") != std::string::npos);
  standing.set("k", as_bytes("v"));
  CHECK(text(late.get("k")) == "v");
  CHECK(text(modern.get("k")) == "v");
  CHECK(by(1) == 2);

  ask_for({fresh});
  CHECK(server.refusal("train", key("train")).second ==
        "joining the test's store: wrong secret, or no such job there");
  CHECK(standing.add("n", 1) == 1);
}
