#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server.hpp"
#include "tests/support/c10d_bytes.hpp"

#include <chrono>
#include <fstream>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace dlaunch;
using namespace dlaunch::c10d_test;
using namespace std::chrono_literals;

namespace {

const std::string hello(as_text(c10d::hello));

class NobodyElse final : public store::Host {
 public:
  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId, const wire::Hello&) override {
    return Refusal{Errc::refused, "this server is for PyTorch's clients"};
  }
  void on_message(store::ConnectionId, const wire::FrameHeader&, BytesView) override {}
  void on_other_version(store::ConnectionId, std::uint32_t) override {}
  void on_closed(store::ConnectionId, bool) override {}
};

/// A server with one c10d listener, on a thread of its own.
class Hosted {
 public:
  Hosted() {
    auto listener = listen_tcp(resolve("127.0.0.1", 0).front());
    address = local_address(listener.get());
    server.listen(std::move(listener), {.native = true, .c10d = true});
    thread = std::jthread([this] { io.run(); });
  }
  ~Hosted() {
    boost::asio::post(io, [this] { server.stop(); });
  }

  /// Runs `work` where the server runs.
  template <class Work>
  auto on_its_thread(Work work) {
    std::packaged_task<decltype(work())()> task(std::move(work));
    auto result = task.get_future();
    boost::asio::post(io, [&] { task(); });
    return result.get();
  }
  store::Counters counters() {
    return on_its_thread([this] { return server.counters(); });
  }

  Address address;

 private:
  boost::asio::io_context io;
  NobodyElse host;

 public:
  store::Server server{io, host};

 private:
  std::jthread thread;
};

/// A client's socket; every wait has a deadline.
class Client {
 public:
  explicit Client(const Hosted& hosted)
      : socket_(connect_tcp(hosted.address, Clock::now() + 10s)) {}

  void say(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const auto size =
          ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      REQUIRE(size > 0);
      sent += static_cast<std::size_t>(size);
    }
  }
  /// Says as much as the kernel takes without waiting; how much that was.
  std::size_t say_some(const std::string& bytes) {
    const auto size =
        ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    return size > 0 ? static_cast<std::size_t>(size) : 0;
  }

  /// Exactly that many bytes, or what came until the end of the connection or the deadline.
  std::string hear(std::size_t count) {
    std::string heard(count, '\0');
    std::size_t size = 0;
    while (size < count && readable(10s)) {
      const auto got = ::recv(socket_.get(), heard.data() + size, count - size, 0);
      if (got <= 0) break;
      size += static_cast<std::size_t>(got);
    }
    heard.resize(size);
    return heard;
  }
  bool ended() {
    char byte = 0;
    return readable(10s) && ::recv(socket_.get(), &byte, 1, 0) <= 0;
  }
  bool silent() { return !readable(0s); }

 private:
  bool readable(Clock::duration within) {
    pollfd wanted{socket_.get(), POLLIN, 0};
    return ::poll(&wanted, 1, poll_timeout_ms(Clock::now() + within)) == 1;
  }
  unique_fd socket_;
};

std::string ping(std::uint32_t nonce) { return Wire().code(code_c::ping).u32(nonce).str(); }

}  // namespace

TEST_CASE("both dialects on one port, byte by byte") {
  Hosted hosted;
  Client old_client(hosted), new_client(hosted);
  const auto set = Wire().code(code_a::set).text("/k").text("v").str();
  for (const char byte : set) old_client.say(std::string(1, byte));
  old_client.say(Wire().code(code_a::count).str());
  CHECK(old_client.hear(8) == Wire().i64(1).str());
  for (const char byte : hello + Wire().code(code_c::get).text("/k").str()) {
    new_client.say(std::string(1, byte));
  }
  CHECK(new_client.hear(9) == Wire().text("v").str());
}

TEST_CASE("a first zero byte waits for the other four") {
  Hosted hosted;
  Client client(hosted), other(hosted);
  client.say(std::string(1, '\0'));
  other.say(hello + ping(1));
  CHECK(other.hear(4) == Wire().u32(1).str());
  CHECK(client.silent());
  client.say(hello.substr(1) + ping(2));
  CHECK(client.hear(4) == Wire().u32(2).str());
}

TEST_CASE("silent connections are counted and kept") {
  Hosted hosted;
  std::vector<Client> silent;
  for (int i = 0; i < 300; ++i) silent.emplace_back(hosted);
  Client talker(hosted);
  talker.say(hello + ping(1));
  CHECK(talker.hear(4) == Wire().u32(1).str());
  CHECK(hosted.counters().silent == 300);
  silent.back().say(hello + ping(2));
  CHECK(silent.back().hear(4) == Wire().u32(2).str());
  CHECK(hosted.counters().silent == 299);
  CHECK(hosted.counters().timed_out == 0);
}

TEST_CASE("garbage is closed and counted, and disturbs nobody") {
  Hosted hosted;
  Client witness(hosted);
  witness.say(hello + Wire().code(code_c::wait).texts({"/k"}).str());
  const std::vector<std::string> garbage{
      from_hex("09"), hello + from_hex("13"),
      hello + Wire().code(code_c::get).u64(~std::uint64_t{0}).str(),
      Wire().code(code_a::wait).u64(std::uint64_t{1} << 63).str()};
  for (const auto& bytes : garbage) {
    Client client(hosted);
    client.say(bytes);
    CHECK(client.ended());
  }
  // A client that begins TLS where there is no secret is shown which protocol this is.
  Client secured(hosted);
  secured.say(from_hex("16 03 01"));
  CHECK(secured.hear(8) == from_hex("44 4c 43 48 02 00 00 00"));
  CHECK(secured.ended());
  Client number(hosted);
  number.say(hello + Wire().code(code_c::set).text("/k").text("text").str() +
             Wire().code(code_c::add).text("/k").i64(1).str());
  CHECK(number.ended());
  CHECK(witness.hear(1) == std::string(1, '\0'));
  CHECK(hosted.counters().garbage == garbage.size() + 1);
}

TEST_CASE("who is refused, and why, is heard with both addresses") {
  Hosted hosted;
  std::promise<std::string> heard;
  hosted.on_its_thread([&] {
    hosted.server.on_refused_c10d(
        [&](const Address& peer, const Address& own, const std::string& why) {
          const bool here = peer_process(own, peer) == ::getpid();
          heard.set_value((own.port() == hosted.address.port() && here ? "we: " : "?: ") + why);
        });
  });
  Client client(hosted);
  client.say(hello + Wire().code(code_c::set).text("/k").u64(1ull << 36).str());
  auto told = heard.get_future();
  REQUIRE(told.wait_for(10s) == std::future_status::ready);
  CHECK(told.get() == "we: a value for '/k' of 68719476736 bytes; the limit is 33554432");
  CHECK(client.ended());
}

TEST_CASE("an answer of gigabytes takes no memory that its client does not take") {
  Hosted hosted;
  Client late(hosted), other(hosted);
  const std::string value(1u << 20, 'v');
  late.say(hello + Wire().code(code_c::set).text("/k").text(value).str());
  // 45 KB that ask for 5 GB.
  late.say(Wire().code(code_c::multi_get).texts(std::vector<std::string>(5000, "/k")).str());
  const auto expected = Wire().text(value).str();
  for (int i = 0; i < 20; ++i) REQUIRE(late.hear(expected.size()) == expected);
  other.say(hello + ping(1));
  CHECK(other.hear(4) == Wire().u32(1).str());
  CHECK(hosted.counters().slow == 0);
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word && word != "VmRSS:";) continue;
  std::size_t resident_kb = 0;
  status >> resident_kb;
  CHECK(resident_kb < (1u << 20));
}

TEST_CASE("what was answered before a refusal still arrives") {
  Hosted hosted;
  Client client(hosted);
  client.say(hello + Wire().code(code_c::set).text("/k").text("text").str() + ping(1) +
             Wire().code(code_c::add).text("/k").i64(1).str() + ping(2));
  CHECK(client.hear(8) == Wire().u32(1).str());
}

TEST_CASE("a waiter hears of a set by another client, and of nothing when it gave up") {
  Hosted hosted;
  Client waiter(hosted), quitter(hosted), setter(hosted);
  waiter.say(hello + ping(1) + Wire().code(code_c::wait).texts({"/k"}).str());
  CHECK(waiter.hear(4).size() == 4);
  quitter.say(hello + Wire().code(code_c::wait).texts({"/k"}).code(code_c::cancel_wait).str());
  CHECK(quitter.hear(1) == std::string(1, '\1'));
  setter.say(Wire().code(code_a::set).text("/k").text("").code(code_a::count).str());
  CHECK(waiter.hear(1) == std::string(1, '\0'));
  CHECK(setter.hear(8) == Wire().i64(1).str());
  CHECK(quitter.silent());
}

TEST_CASE("a new attempt finds an empty store behind the same port") {
  Hosted hosted;
  Client before(hosted), waiting(hosted);
  before.say(hello + Wire().code(code_c::set).text("/k").text("v").str() + ping(1));
  waiting.say(hello + ping(1) + Wire().code(code_c::wait).texts({"/never"}).str());
  CHECK(before.hear(4).size() == 4);
  CHECK(waiting.hear(4).size() == 4);
  hosted.on_its_thread([&] { hosted.server.renew_c10d(); });
  CHECK(before.ended());
  CHECK(waiting.ended());
  Client after(hosted);
  after.say(hello + Wire().code(code_c::count).str());
  CHECK(after.hear(8) == Wire().i64(0).str());
}

TEST_CASE("a client that asks for much and reads late gets it all, and holds up nobody") {
  Hosted hosted;
  Client late(hosted), other(hosted);
  const std::string value(1u << 20, 'v');
  late.say(hello + Wire().code(code_c::set).text("/k").text(value).str());
  const auto get = Wire().code(code_c::get).text("/k").str();
  const std::size_t count = 64;
  std::string gets;
  for (std::size_t i = 0; i < count; ++i) gets += get;
  late.say(gets + ping(7));

  other.say(hello + ping(1));
  CHECK(other.hear(4) == Wire().u32(1).str());

  const auto expected = Wire().text(value).str();
  for (std::size_t i = 0; i < count; ++i) REQUIRE(late.hear(expected.size()) == expected);
  CHECK(late.hear(4) == Wire().u32(7).str());
  CHECK(hosted.counters().slow == 0);
}

TEST_CASE("a client that never reads is not read from without end") {
  Hosted hosted;
  Client deaf(hosted), other(hosted);
  const std::string value(1u << 20, 'v');
  deaf.say(hello + Wire().code(code_c::set).text("/k").text(value).str());
  std::string gets;
  for (int i = 0; i < 4096; ++i) gets += Wire().code(code_c::get).text("/k").str();
  // Either it is no longer read from, or it has been dropped; in both cases nothing more is taken.
  std::size_t taken = 0;
  const auto deadline = Clock::now() + 20s;
  for (int idle = 0; idle < 3 && Clock::now() < deadline;) {
    const auto some = deaf.say_some(gets);
    taken += some;
    idle = some == 0 ? idle + 1 : 0;
    other.say((taken == some ? hello : std::string()) + ping(3));
    REQUIRE(other.hear(4) == Wire().u32(3).str());
  }
  CHECK(taken < (64u << 20));
}
