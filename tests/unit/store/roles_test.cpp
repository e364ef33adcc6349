// What a connection may do by the secret that it has proved.
#include "runtime/store/native/roles.hpp"

#include "runtime/store/core/key_values.hpp"
#include "tests/support/guarded_server.hpp"

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;
using store::beyond;
using store::Role;

TEST_CASE("each request has its least role, and a refusal names both and the call") {
  const auto set = store::request::Set::type, get = store::request::Get::type;
  CHECK(beyond(Role::read_only, get).empty());
  CHECK(beyond(Role::tool, set).empty());
  CHECK(beyond(Role::read_only, set) ==
        "set takes the role tool, and this connection's secret is for the role read-only");
  CHECK(beyond(Role::tool, store::request::Barrier::type) ==
        "barrier takes the role node, and this connection's secret is for the role tool");
  CHECK(beyond(Role::tool, wire::Type::report) ==
        "to take part in a job takes the role node, and this connection's secret is for the role "
        "tool");
  CHECK(beyond(Role::read_only, wire::Type::ping).empty());
  CHECK(beyond(Role::read_only, wire::Type::goodbye).empty());
  // What changes something is not for readers; a node may do it all.
  store::request::Requests::any([](auto operation) {
    const auto type = decltype(operation)::Message::type;
    if (wire::is_change(type)) CHECK_FALSE(beyond(Role::read_only, type).empty());
    CHECK(beyond(Role::node, type).empty());
    return false;
  });
}

TEST_CASE("a secret for tools, and one for reading, do that and no more") {
  constexpr const char* third = "aa0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
  const auto of = [](const char* secret) -> store::KeyOfJob {
    return [secret](std::string_view job) { return key(std::string(job), secret); };
  };
  GuardedServer server;
  server.on_loop([&](store::Server& s) {
    s.ask_for({.keys = {{.number = 1, .key_of = of(our_secret)},
                        {.number = 2, .key_of = of(their_secret), .role = Role::tool},
                        {.number = 3, .key_of = of(third), .role = Role::read_only}}});
    return 0;
  });
  store::Client node = server.client_with("train", key("train"));
  store::Client tool = server.client_with("train", key("train", their_secret));
  store::Client reader = server.client_with("train", key("train", third));
  node.set("k", as_bytes("by the node"));
  tool.set("k", as_bytes("by the tool"));
  CHECK(text(reader.get("k")) == "by the tool");
  CHECK(
      failure([&] { reader.set("k", as_bytes("by the reader")); })
          .second.find(
              "set takes the role tool, and this connection's secret is for the role read-only") !=
      std::string::npos);
  CHECK(failure([&] { reader.add("n", 1); }).first == Errc::refused);
  CHECK(text(node.get("k")) == "by the tool");

  auto agent = GuardedServer::with("train", key("train", their_secret));
  agent.hello.session = 7;
  const auto refused = failure([&] { store::Client(server.connect(), agent, nullptr, soon()); });
  CHECK(refused.first == Errc::unauthenticated);
  CHECK(refused.second.find("its secret is for the role tool, and to join a job takes the role "
                            "node: give the nodes' secret") != std::string::npos);
  CHECK(server.log().back().find("which came to join 'train' with a secret for the role tool") !=
        std::string::npos);
}
