// A server that asks for the job's secret, over real sockets, and who tries to get by without.
#include "tests/support/guarded_server.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/uplink_peer.hpp"

#include <array>

#include <doctest/doctest.h>
#include <ifaddrs.h>

using namespace dlaunch;
using namespace dlaunch::test;
using testing::contains;

TEST_CASE("with the job's key everything works, large values and waits as well") {
  GuardedServer server;
  store::Client one = server.client_with("train", key("train"));
  store::Client two = server.client_with("train", key("train"));
  CHECK(one.welcome() == wire::Welcome{"job-1", 7, 0});
  const Bytes large(wire::value_bytes_max, std::byte{42});
  one.set("large", large);
  CHECK(two.get("large") == large);
  std::jthread setter([&] { one.set("late", as_bytes("value")); });
  CHECK(text(two.wait("late", soon())) == "value");
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&two] {
      for (int n = 0; n < 200; ++n) two.add("n", 1);
    });
  }
  callers.clear();
  CHECK(text(one.get("n")) == "800");
  CHECK(server.counters().unauthenticated == 0);
}

TEST_CASE("a port that also serves PyTorch takes TLS, and does not mind who is silent") {
  GuardedServer server;
  store::Client client(connect_tcp(server.both_address, soon()),
                       GuardedServer::with("train", key("train")), nullptr, soon());
  client.set("k", as_bytes("v"));
  CHECK(text(client.get("k")) == "v");
  CHECK(server.counters().silent == 0);
}

TEST_CASE("a wrong secret, an unknown job, and another job's secret sound alike") {
  GuardedServer server;
  const auto wrong = server.refusal("train", key("train", their_secret));
  const auto unknown = server.refusal("nosuch", key("nosuch", their_secret));
  CHECK(wrong.first == Errc::unauthenticated);
  CHECK(wrong == unknown);
  CHECK(wrong.second == "joining the test's store: wrong secret, or no such job there");
  // A key given away for one job, offered under the name of another.
  CHECK(server.refusal("train", key("other")) == wrong);
  CHECK(server.unauthenticated(3));
  CHECK(server.host.quiet());
}

TEST_CASE("who proves one job cannot say HELLO to another") {
  GuardedServer server;
  const unique_fd socket = server.connect();
  const auto tls = store::connect_tls("other", key("other"));
  Bytes plain, sealed;
  shake_hands(*tls, socket, plain);
  REQUIRE(tls->seal(hello_of("train"), sealed));
  say(socket, sealed);
  const auto answer = all_of(socket);
  REQUIRE(answer);
  sealed.clear();
  tls->feed(*answer, plain, sealed);
  CHECK(contains(as_text(plain), "wrong secret, or no such job here"));
  CHECK(server.unauthenticated(1));
  CHECK(server.host.quiet());
}

TEST_CASE("without the secret nobody comes in, and nobody is told anything but why") {
  GuardedServer server;
  store::Client insider = server.client_with("train", key("train"));
  insider.set("key", as_bytes("the value"));
  const auto none = server.refusal("train", std::nullopt);
  CHECK(none.first == Errc::unauthenticated);
  CHECK(none.second.find("it asks for the job's secret, and none was given") != std::string::npos);
  CHECK(server.unauthenticated(1));

  SUBCASE("reading after a refused HELLO") {
    const unique_fd socket = server.connect();
    Bytes bytes = hello_of("train");
    const Bytes get = get_frame("key");
    bytes.insert(bytes.end(), get.begin(), get.end());
    say(socket, bytes);
    const auto heard = all_of(socket);
    REQUIRE(heard);
    CHECK_FALSE(contains(as_text(*heard), "the value"));
  }
  SUBCASE("reading without a HELLO, in the clear") {
    const unique_fd socket = server.connect();
    Bytes bytes;
    wire::encode_preface(bytes);
    const Bytes get = get_frame("key");
    bytes.insert(bytes.end(), get.begin(), get.end());
    say(socket, bytes);
    const auto heard = all_of(socket);
    REQUIRE(heard);
    CHECK_FALSE(contains(as_text(*heard), "the value"));
  }
  SUBCASE("reading in the clear in the middle of a handshake") {
    const unique_fd socket = server.connect();
    const auto tls = store::connect_tls("train", key("train"));
    Bytes plain, hello;
    tls->feed({}, plain, hello);
    say(socket, BytesView(hello).first(hello.size() / 2));
    say(socket, get_frame("key"));
    say(socket, Bytes(TlsChannel::handshake_bytes_max));
    const auto heard = all_of(socket);
    REQUIRE(heard);
    CHECK_FALSE(contains(as_text(*heard), "the value"));
    CHECK(server.unauthenticated(2));
  }
  CHECK(text(insider.get("key")) == "the value");
}

TEST_CASE("a recorded connection that is sent again changes nothing") {
  GuardedServer server;
  store::Client insider = server.client_with("train", key("train"));
  Bytes recorded;
  {
    const unique_fd socket = server.connect();
    const auto tls = store::connect_tls("train", key("train"));
    Bytes plain, out;
    tls->feed({}, plain, out);
    say(socket, out);
    recorded = out;
    while (!tls->established()) {
      std::array<std::byte, 4096> part{};
      const ssize_t n = ::recv(socket.get(), part.data(), part.size(), 0);
      REQUIRE(n > 0);
      out.clear();
      tls->feed(BytesView(part).first(static_cast<std::size_t>(n)), plain, out);
    }
    Bytes said = hello_of("train");
    wire::encode_frame(said, {0, {}, 0, 1, 0}, wire::Add{"n", 1});
    REQUIRE(tls->seal(said, out));
    say(socket, out);
    recorded.insert(recorded.end(), out.begin(), out.end());
    CHECK(text(insider.wait("n", soon())) == "1");
  }
  const unique_fd socket = server.connect();
  say(socket, recorded);
  CHECK(all_of(socket).has_value());
  CHECK(server.unauthenticated(1));
  CHECK(text(insider.get("n")) == "1");
}

TEST_CASE("plain connections come in over unix sockets, and over loopback where that is trusted") {
  GuardedServer guarded;
  CHECK_NOTHROW(guarded.paired_client());
  GuardedServer trusting(true);
  CHECK_NOTHROW(trusting.client());
  CHECK_NOTHROW(trusting.client_with("train", key("train")));
}

TEST_CASE("loopback is trusted, the host's other addresses are not") {
  ifaddrs* list = nullptr;
  REQUIRE(::getifaddrs(&list) == 0);
  std::optional<Address> own;
  for (const ifaddrs* one = list; one != nullptr && !own; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    Address address;
    address.size = sizeof(sockaddr_in);
    std::memcpy(&address.storage, one->ifa_addr, address.size);
    if (!address.is_loopback()) own = resolve(address.host(), 0).at(0);
  }
  ::freeifaddrs(list);
  if (!own) return testing::skipped("this machine has no address but loopback");
  GuardedServer server(true);
  const Address at = server.on_loop([&](store::Server& s) {
    unique_fd listener = listen_tcp(*own);
    const Address bound = local_address(listener.get());
    s.listen(std::move(listener), {true, false});
    return bound;
  });
  const auto join = [&](std::optional<Key> proof) {
    return failure([&] {
      store::Client(connect_tcp(at, soon()), GuardedServer::with("train", proof), nullptr, soon());
    });
  };
  CHECK(join(std::nullopt).second.find("asks for the job's secret") != std::string::npos);
  CHECK(join(key("train")).second == "no error");
}

TEST_CASE("a client with a key says nothing to a server without one") {
  SUBCASE("one of ours") {
    ServerThread server;
    const auto [code, sentence] = failure([&] {
      store::Client(server.connect(), GuardedServer::with("train", key("train")), nullptr, soon());
    });
    CHECK(code == Errc::unauthenticated);
    CHECK(sentence.find("does not speak TLS, so it cannot prove the job's secret") !=
          std::string::npos);
    CHECK(server.host.quiet());
  }
  SUBCASE("an attacker's, which hopes that the client goes on in the clear") {
    const unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    Bytes heard;
    std::jthread attacker([&] {
      const unique_fd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      Bytes preface;
      wire::encode_preface(preface);
      say(peer, preface);
      heard = all_of(peer).value_or(Bytes{});
    });
    const auto [code, sentence] = failure([&] {
      store::Client(connect_tcp(local_address(listener.get()), soon()),
                    GuardedServer::with("train", key("train")), nullptr, soon());
    });
    attacker.join();
    CHECK(code == Errc::unauthenticated);
    CHECK_FALSE(contains(as_text(heard), "DLCH"));
  }
  SUBCASE("a port that closes") {
    const unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0));
    std::jthread closing(
        [&] { unique_fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)); });
    const auto [code, sentence] = failure([&] {
      store::Client(connect_tcp(local_address(listener.get()), soon()),
                    GuardedServer::with("train", key("train")), nullptr, soon());
    });
    CHECK(code == Errc::unreachable);
    CHECK(sentence.find("is it a rendezvous with a secret?") != std::string::npos);
  }
}

TEST_CASE("slow and half handshakes keep nobody else out, and have an end") {
  GuardedServer server;
  Bytes plain, hello;
  const auto tls = store::connect_tls("train", key("train"));
  tls->feed({}, plain, hello);
  std::vector<unique_fd> half;
  for (int i = 0; i < 300; ++i) {
    half.push_back(server.connect());
    say(half.back(), BytesView(hello).first(100));
  }
  CHECK_NOTHROW(server.client_with("train", key("train")));
  for (const unique_fd& socket : half) CHECK(all_of(socket).has_value());
  CHECK(server.count([](const store::Counters& c) { return c.timed_out == 300; }));
  CHECK_NOTHROW(server.client_with("train", key("train")));
}

TEST_CASE("a broken connection is opened again, with the key, and counts once") {
  GuardedServer server;
  auto options = GuardedServer::with("train", key("train"));
  options.hello.session = 99;
  std::atomic<int> opened = 0;
  options.reconnect = [&](Clock::time_point) {
    ++opened;
    return server.connect();
  };
  store::Client client(server.connect(), options, nullptr, soon());
  CHECK(client.add("n", 1) == 1);
  ::shutdown(client.fd(), SHUT_RDWR);
  CHECK(client.add("n", 1) == 2);
  CHECK(opened == 1);
}

TEST_CASE("who was refused and why is told in one line each") {
  GuardedServer server;
  server.refusal("evil\nline", std::nullopt);
  server.refusal("train", key("train", their_secret));
  CHECK(server.unauthenticated(2));
  const auto log = server.log();
  REQUIRE(log.size() == 2);
  CHECK(log.front().starts_with("refused 127.0.0.1:"));
  CHECK(log.front().find("no secret was given") != std::string::npos);
  CHECK(log.front().find("trust-loopback") != std::string::npos);
  for (const std::string& line : log) CHECK(line.find('\n') == std::string::npos);
}

TEST_CASE("a client that does not read is dropped under TLS, too") {
  GuardedServer server;
  store::Client good = server.client_with("train", key("train"));
  good.set("big", Bytes(4u << 20));
  const unique_fd socket = server.connect();
  const auto tls = store::connect_tls("train", key("train"));
  Bytes plain, out, said = hello_of("train");
  shake_hands(*tls, socket, plain);
  wire::encode_frame(said, {0, {}, 0, 1, 0}, wire::Watch{"big"});
  REQUIRE(tls->seal(said, out));
  say(socket, out);
  for (int i = 0; i < 200 && server.counters().slow == 0; ++i) {
    good.set("big", Bytes(4u << 20, static_cast<std::byte>(i)));
  }
  CHECK(server.count([](const store::Counters& c) { return c.slow == 1; }));
}

TEST_CASE("an agent's connection goes through TLS, and through it again when it was broken") {
  GuardedServer server;
  auto options = UplinkPeer::options(server.native_address);
  options.hello.job = "train";
  options.key = key("train");
  UplinkPeer agent(std::move(options));
  REQUIRE(agent.welcomed());
  const Bytes large(wire::value_bytes_max, std::byte{42});
  CHECK(agent.ask(wire::Set{"large", large}) == "done");
  CHECK(agent.ask(wire::Get{"large"}) == "found " + std::string(as_text(large)));
  server.on_loop([&](store::Server& s) { return s.close(server.host.last()), 0; });
  REQUIRE(agent.welcomed(2));
  CHECK(agent.ask(wire::Add{"n", 1}) == "number 1");
  agent.uplink->close();
  agent.io.run_for(20s);
  CHECK(server.host.heard("goodbye"));
}

TEST_CASE("an agent without the secret, or with a wrong one, is refused for good") {
  GuardedServer server;
  auto options = UplinkPeer::options(server.native_address);
  options.hello.job = "train";
  std::string said;
  SUBCASE("none") { said = "it asks for the job's secret, and none was given"; }
  SUBCASE("a wrong one") {
    options.key = key("train", their_secret);
    said = "wrong secret, or no such job there";
  }
  UplinkPeer agent(std::move(options));
  REQUIRE(agent.until([&] { return !agent.refusals.empty(); }));
  CHECK(agent.refusals.front().code == Errc::unauthenticated);
  CHECK(agent.refusals.front().sentence.find(said) != std::string::npos);
}
