// The one connection of a node, against a real server and through a network that fails.
#include "runtime/store/relay/uplink.hpp"

#include "tests/support/expect.hpp"
#include "tests/support/skipped.hpp"
#include "tests/support/store_server.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "tests/support/uplink_peer.hpp"

#include <algorithm>
#include <fstream>
#include <random>
#include <thread>

#include <doctest/doctest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

using testing::contains;

/// A type that only a host reads.
constexpr wire::Type the_hosts{98};

/// Accepts, writes what it is told to, and keeps or closes the connection.
class Speaker {
 public:
  Speaker(Bytes text, bool closes)
      : listener_(listen_tcp(resolve("127.0.0.1", 0).at(0))),
        thread_([this, text = std::move(text), closes] {
          while (unique_fd peer{::accept(listener_.get(), nullptr, nullptr)}) {
            [[maybe_unused]] const auto n =
                ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL);
            if (!closes) kept_.push_back(std::move(peer));
          }
        }) {}
  ~Speaker() { ::shutdown(listener_.get(), SHUT_RDWR); }
  Address address() const { return local_address(listener_.get()); }

 private:
  unique_fd listener_;
  std::vector<unique_fd> kept_;
  std::jthread thread_;
};

Bytes bytes(std::string_view text) {
  return {dlaunch::as_bytes(text).begin(), dlaunch::as_bytes(text).end()};
}

}  // namespace

TEST_CASE("requests are answered, pushes arrive, and goodbye is said") {
  ServerThread server;
  UplinkPeer peer(UplinkPeer::options(server.native_address));
  REQUIRE(peer.welcomed());
  CHECK(server.host.heard("hello -"));
  CHECK(peer.uplink->local_address().host() == "127.0.0.1");
  CHECK(peer.ask(wire::Set{"k", as_bytes("v")}) == "done");
  CHECK(peer.ask(wire::Get{"k"}) == "found v");
  CHECK(contains(peer.ask(wire::Wait{{1000}, {"never"}}), "waiting for 'never'"));
  peer.uplink->tell(the_hosts, as_bytes("beat"));
  CHECK(peer.ask(wire::Count{}) == "number 1");
  CHECK(server.host.heard("message 98 beat"));
  server.on_loop([&](store::Server& s) {
    s.push(server.host.last(), the_hosts, as_bytes("news"));
    return 0;
  });
  CHECK(peer.until([&] { return peer.pushes == std::vector<std::string>{"news"}; }));
  peer.uplink->close();
  peer.io.run();
  CHECK(server.host.heard("goodbye"));
  CHECK(peer.troubles.empty());
}

TEST_CASE("a change counts once, however often the connection is cut") {
  ServerThread server;
  TcpProxy proxy(server.native_address);
  UplinkPeer peer(UplinkPeer::options(proxy.address()));
  constexpr std::size_t adds = 3000;
  std::vector<std::string> sums;
  std::minstd_rand random(1);
  std::vector<std::size_t> cuts;
  for (int i = 0; i < 12; ++i) cuts.push_back(random() % adds);
  std::ranges::sort(cuts);
  for (std::size_t i = 0; i < adds; ++i) peer.ask(wire::Add{"counter", 1}, sums);
  for (const std::size_t cut : cuts) {
    REQUIRE(peer.until([&] { return sums.size() >= cut; }));
    proxy.cut();
    // Requests on the way while it is cut could count twice, or not at all.
    REQUIRE(peer.until([&] { return !peer.uplink->connected() || sums.size() == adds; }));
  }
  REQUIRE(peer.until([&] { return sums.size() == adds; }));
  std::ranges::sort(sums);
  CHECK(std::ranges::adjacent_find(sums) == sums.end());
  CHECK(peer.ask(wire::Get{"counter"}) == "found " + std::to_string(adds));
  CHECK(peer.welcomes > 1);
  CHECK(contains(peer.troubles.front().sentence, "lost the rendezvous at 127.0.0.1:"));
}

TEST_CASE("waits, pops and watches go on after a cut") {
  ServerThread server;
  TcpProxy proxy(server.native_address);
  UplinkPeer peer(UplinkPeer::options(proxy.address()));
  store::Client other = server.client(1);
  std::vector<std::string> waited, popped, changed, late, cancelled;
  peer.ask(wire::WaitGet{{}, "k"}, waited);
  peer.ask(wire::Pop{{}, "q"}, popped);
  peer.ask(wire::Watch{"w"}, changed);
  peer.ask(wire::Wait{{300'000}, {"never"}}, late);
  const auto number = peer.ask(wire::WaitGet{{}, "c"}, cancelled);
  REQUIRE(peer.welcomed());
  proxy.cut();
  REQUIRE(peer.welcomed(2));
  CHECK(peer.ask(wire::Count{}) == "number 0");  // The repeated requests are there by now.
  peer.uplink->forget(number);
  CHECK(peer.ask(wire::Count{}) == "number 0");
  other.set("c", as_bytes("x"));
  other.set("k", as_bytes("v"));
  other.push("q", as_bytes("p"));
  other.set("w", as_bytes("1"));
  other.set("w", as_bytes("2"));
  CHECK(peer.until([&] { return changed.size() == 2 && waited.size() + popped.size() == 2; }));
  CHECK(waited.front() == "found v");
  CHECK(popped.front() == "popped p");
  CHECK(changed == std::vector<std::string>{"changed 1", "changed 2"});
  REQUIRE(peer.until([&] { return !late.empty(); }));
  CHECK(late.front() == "failed timeout: waiting for 'never'");
  CHECK(cancelled.empty());
}

TEST_CASE("more pops than the server remembers answers do not keep the pushes out") {
  ServerThread server;
  UplinkPeer peer(UplinkPeer::options(server.native_address));
  std::vector<std::string> popped, pushed;
  for (int i = 0; i < 600; ++i) peer.ask(wire::Pop{{}, "q"}, popped);
  for (int i = 0; i < 600; ++i) peer.ask(wire::Push{"q", as_bytes("x")}, pushed);
  CHECK(peer.until([&] { return popped.size() == 600 && pushed.size() == 600; }));
}

TEST_CASE("silence is death: a half-open connection is replaced") {
  ServerThread server;
  TcpProxy proxy(server.native_address);
  auto options = UplinkPeer::options(proxy.address());
  options.silence_max = 300ms;
  options.step_max = 300ms;
  UplinkPeer peer(std::move(options));
  REQUIRE(peer.welcomed());
  for (const auto mode : {TcpProxy::Mode::swallow, TcpProxy::Mode::stall}) {
    peer.troubles.clear();
    proxy.set(mode);
    std::vector<std::string> answers;
    peer.ask(wire::Set{"k", as_bytes("v")}, answers);
    CHECK(peer.troubled("nothing came from it for 300 ms"));
    CHECK(peer.troubled("connected, but it does not answer within 300 ms"));
    proxy.set(TcpProxy::Mode::forward);
    CHECK(peer.until([&] { return answers == std::vector<std::string>{"done"}; }));
  }
}

TEST_CASE("a connection that is idle lives") {
  ServerThread server;
  auto options = UplinkPeer::options(server.native_address);
  options.silence_max = 30ms;
  UplinkPeer peer(std::move(options));
  REQUIRE(peer.welcomed());
  const auto end = Clock::now() + 300ms;
  peer.until([&] { return Clock::now() > end; });
  CHECK(peer.ask(wire::Count{}) == "number 0");
}

TEST_CASE("what is queued for a peer that does not read has a limit") {
  ServerThread server;
  TcpProxy proxy(server.native_address);
  UplinkPeer peer(UplinkPeer::options(proxy.address()));
  REQUIRE(peer.welcomed());
  proxy.set(TcpProxy::Mode::stall);
  const Bytes big(wire::value_bytes_max);
  std::vector<std::string> answers;
  for (int i = 0; i < 9; ++i) peer.ask(wire::Set{"k" + std::to_string(i), big}, answers);
  CHECK(peer.troubled("it does not read; "));
  proxy.set(TcpProxy::Mode::forward);
  CHECK(peer.until([&] { return answers.size() == 9; }));
}

TEST_CASE("each way in which no connection comes about has its sentence") {
  const auto trouble = [](store::Uplink::Options options, const std::string& sentence) {
    options.step_max = 200ms;
    UplinkPeer peer(std::move(options));
    CHECK(peer.troubled(sentence));
    CHECK(peer.troubles.front().code == Errc::unreachable);
    CHECK(peer.troubles.front().sentence == sentence);
    CHECK(peer.refusals.empty());
  };
  unique_fd listener = listen_tcp(resolve("127.0.0.1", 0).at(0), 0);
  const Address at = local_address(listener.get());
  const std::string where = at.to_string();
  SUBCASE("filtered") {
    // A listener with a full queue drops what comes, as a firewall does.
    std::vector<unique_fd> full;
    try {
      while (full.size() < 8) full.push_back(connect_tcp(at, Clock::now() + 200ms));
    } catch (const Error&) {
    }
    trouble(UplinkPeer::options(at),
            "connecting to " + where + ": no answer (host down, or filtered by a firewall)");
  }
  SUBCASE("refused") {
    listener.reset();
    trouble(UplinkPeer::options(at),
            "connecting to " + where + ": connection refused (nothing listens there)");
  }
  SUBCASE("mute") {
    trouble(UplinkPeer::options(at), "joining the rendezvous at " + where +
                                         ": connected, but it does not answer within 200 ms; is it "
                                         "one, and is the port right?");
  }
  SUBCASE("it answers lines alone") {
    std::jthread speaker([&] {
      constexpr std::string_view answer = "HTTP/1.1 400 Bad Request\r\n";
      while (unique_fd peer{::accept(listener.get(), nullptr, nullptr)}) {
        char byte = 0;
        while (byte != '\n' && ::recv(peer.get(), &byte, 1, 0) == 1) continue;
        [[maybe_unused]] const auto n =
            ::send(peer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
        while (::recv(peer.get(), &byte, 1, 0) == 1) continue;
      }
    });
    trouble(UplinkPeer::options(at), "joining the rendezvous at " + where +
                                         ": what answers there is not dlaunch (it says 'HTTP/1.1 "
                                         "400 Bad Request'); is the port right?");
    ::shutdown(listener.get(), SHUT_RDWR);
  }
  SUBCASE("closed without a word") {
    // Read to the end first: closing with unread input resets the connection instead.
    std::jthread closer([&] {
      while (unique_fd peer{::accept(listener.get(), nullptr, nullptr)}) {
        std::array<std::byte, 256> hello;
        [[maybe_unused]] const auto n = ::recv(peer.get(), hello.data(), hello.size(), 0);
      }
    });
    trouble(UplinkPeer::options(at), "joining the rendezvous at " + where +
                                         ": it closed the connection without an answer; is it "
                                         "one, and is the port right?");
    ::shutdown(listener.get(), SHUT_RDWR);
  }
  SUBCASE("something else lives there, and says little") {
    const Speaker speaker(bytes("hi"), false);
    trouble(UplinkPeer::options(speaker.address()),
            "joining the rendezvous at " + speaker.address().to_string() +
                ": what answers there is not dlaunch (it says 'hi'); is the port right?");
  }
  SUBCASE("a message that cannot be") {
    Bytes frame;
    wire::encode_preface(frame);
    wire::encode_frame(frame, {0, {}, wire::reply, 0, 0}, wire::Number{3});
    const Speaker speaker(frame, false);
    trouble(UplinkPeer::options(speaker.address()),
            "joining the rendezvous at " + speaker.address().to_string() +
                ": it answers HELLO with a message of type 129, which makes no sense");
  }
}

TEST_CASE("who refuses, or speaks another version, is not asked again") {
  SUBCASE("refused") {
    ServerThread server;
    auto options = UplinkPeer::options(server.native_address);
    options.hello.job = "forbidden";
    UplinkPeer peer(std::move(options));
    REQUIRE(peer.until([&] { return !peer.refusals.empty(); }));
    CHECK(peer.refusals.front().code == Errc::refused);
    CHECK(peer.refusals.front().sentence == "joining the rendezvous at " +
                                                server.native_address.to_string() +
                                                ": refused: this job may not come in");
    peer.io.run();  // It returns: nothing is left to be tried.
    CHECK(peer.refusals.size() == 1);
  }
  SUBCASE("another version") {
    Bytes preface;
    wire::encode_preface(preface);
    preface[4] = std::byte{3};
    const Speaker speaker(preface, false);
    UplinkPeer peer(UplinkPeer::options(speaker.address()));
    REQUIRE(peer.until([&] { return !peer.refusals.empty(); }));
    CHECK(peer.refusals.front().code == Errc::version);
    CHECK(contains(peer.refusals.front().sentence,
                   "it speaks version 3 of the protocol, this side version 2; use the same"));
  }
}

TEST_CASE("a connection that stands is used first, and may be the only one") {
  ServerThread server;
  auto pair = socket_pair();
  server.on_loop([&](store::Server& s) { return s.adopt(std::move(pair.second)); });
  SUBCASE("the only one") {
    store::Uplink::Options options;
    options.hello.session = 5;
    options.connected = std::move(pair.first);
    UplinkPeer peer(std::move(options));
    REQUIRE(peer.welcomed());
    CHECK(peer.ask(wire::Set{"k", as_bytes("v")}) == "done");
    server.on_loop([&](store::Server& s) {
      s.close(server.host.last());
      return 0;
    });
    REQUIRE(peer.until([&] { return !peer.refusals.empty(); }));
    CHECK(peer.refusals.front().code == Errc::peer_lost);
    CHECK(peer.refusals.front().sentence == "lost the rendezvous: it closed the connection");
  }
  SUBCASE("the first one") {
    auto options = UplinkPeer::options(server.native_address);
    options.connected = std::move(pair.first);
    UplinkPeer peer(std::move(options));
    REQUIRE(peer.welcomed());
    CHECK(peer.uplink->local_address().host().starts_with("unix:"));
    server.on_loop([&](store::Server& s) {
      s.close(server.host.last());
      return 0;
    });
    REQUIRE(peer.welcomed(2));
    CHECK(peer.uplink->local_address().host() == "127.0.0.1");
  }
}

TEST_CASE("it may be destroyed by what it calls") {
  ServerThread server;
  SUBCASE("trouble") {
    TcpProxy proxy(server.native_address);
    UplinkPeer peer(UplinkPeer::options(proxy.address()));
    REQUIRE(peer.welcomed());
    peer.on_trouble_do = [&] { peer.uplink.reset(); };
    proxy.cut();
    peer.io.run();
    CHECK(!peer.uplink);
  }
  SUBCASE("welcome") {
    UplinkPeer peer(UplinkPeer::options(server.native_address));
    peer.on_welcome_do = [&] { peer.uplink.reset(); };
    peer.io.run();
    CHECK(!peer.uplink);
  }
  SUBCASE("an answer") {
    UplinkPeer peer(UplinkPeer::options(server.native_address));
    Bytes payload;
    for (int i = 0; i < 2; ++i) {
      peer.uplink->request(wire::Count::type, 0, payload,
                           [&](const wire::FrameHeader&, BytesView) { peer.uplink.reset(); });
    }
    peer.io.run();
    CHECK(!peer.uplink);
  }
}

// ---- Names, in a namespace of our own ----

namespace {

constexpr int no_namespace = 77;

/// A network with nothing but loopback, and a table of hosts that is ours.
bool enter_empty_network(const std::string& hosts) {
  if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 &&
      ::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) {
    return false;
  }
  const unique_fd any(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq loopback{};
  std::strncpy(loopback.ifr_name, "lo", sizeof loopback.ifr_name - 1);
  loopback.ifr_flags = IFF_UP;
  return ::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0 &&
         ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount(hosts.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) == 0;
}

/// The exit code of what runs in a process of its own.
int in_child(const std::function<int()>& act) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(act());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

void check(int code_of_child) {
  if (code_of_child == no_namespace) {
    testing::skipped("no right to make a network namespace");
  } else {
    CHECK(code_of_child == 0);
  }
}

}  // namespace

TEST_CASE("a name that is not known yet, and a network that is not there") {
  const std::string hosts =
      std::string(DLAUNCH_BINARY_DIR) + "/tests/uplink_hosts." + std::to_string(::getpid());
  std::ofstream(hosts) << "127.0.0.1 localhost\n";
  SUBCASE("the name comes later") {
    const int code = in_child([&] {
      if (!enter_empty_network(hosts)) return no_namespace;
      ServerThread server;
      auto options = UplinkPeer::options(server.native_address);
      options.host = "head.dlaunch.test";
      UplinkPeer peer(std::move(options));
      if (!peer.troubled("looking up the host name 'head.dlaunch.test' failed: ")) return 1;
      std::ofstream(hosts, std::ios::app) << "127.0.0.1 head.dlaunch.test\n";
      return peer.welcomed() ? 0 : 2;
    });
    check(code);
  }
  SUBCASE("this host has its name without a table of hosts") {
    const int code = in_child([&] {
      if (!enter_empty_network(hosts)) return no_namespace;
      std::ofstream(hosts, std::ios::trunc) << "127.0.0.1 head.dlaunch.test\n";
      const auto found = resolve("localhost", 1);
      return found.size() == 2 && found[0].to_string() == "127.0.0.1:1" &&
                     found[1].to_string() == "[::1]:1"
                 ? 0
                 : 1;
    });
    check(code);
  }
  SUBCASE("no route") {
    const int code = in_child([&] {
      if (!enter_empty_network(hosts)) return no_namespace;
      UplinkPeer peer(UplinkPeer::options(resolve("192.0.2.1", 29400).front()));
      return peer.troubled("connecting to 192.0.2.1:29400: no route to that host") ? 0 : 1;
    });
    check(code);
  }
  ::unlink(hosts.c_str());
}
