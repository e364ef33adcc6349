// Client and server over real sockets: every operation, from one thread and from many.
#include "tests/support/store_server.hpp"

#include <atomic>

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

void every_operation(store::Client& client) {
  CHECK(client.welcome() == wire::Welcome{"job-1", 7, 0});
  CHECK_FALSE(client.get("k"));
  client.set("k", as_bytes("one"));
  CHECK(text(client.get("k")) == "one");
  CHECK(text(client.wait("k", soon())) == "one");
  CHECK(client.add("n", 5) == 5);
  CHECK(client.add("n", -7) == -2);
  CHECK(text(client.get("n")) == "-2");
  CHECK_FALSE(client.compare_set("k", std::nullopt, as_bytes("two")));
  CHECK(client.compare_set("k", as_bytes("one"), as_bytes("two")));
  CHECK(client.append("k", as_bytes("!")) == 4);
  CHECK(text(client.get("k")) == "two!");
  CHECK(client.list("") == std::vector<std::string>{"k", "n"});
  CHECK(client.list("k") == std::vector<std::string>{"k"});
  CHECK(client.erase("k"));
  CHECK_FALSE(client.erase("k"));
  const std::vector<std::string> keys{"a", "b", "c"};
  const std::vector<Bytes> values{Bytes(1, std::byte{1}), Bytes{}, Bytes(100'000, std::byte{3})};
  client.multi_set(keys, values);
  const auto back = client.multi_get(std::vector<std::string>{"c", "nobody", "b", "a"});
  REQUIRE(back.size() == 4);
  CHECK(back[0] == values[2]);
  CHECK_FALSE(back[1]);
  CHECK(back[2] == values[1]);
  client.wait_all(keys, soon());
  CHECK_FALSE(client.try_pop("q"));
  client.push("q", as_bytes("1"));
  client.push("q", as_bytes("2"));
  CHECK(client.queue_size("q") == 2);
  CHECK(text(client.try_pop("q")) == "1");
  CHECK(text(client.pop("q", soon())) == "2");
  const Bytes large(wire::value_bytes_max, std::byte{42});
  client.set("large", large);
  CHECK(client.get("large") == large);
  client.barrier("alone", 0, 1, soon());
  client.barrier("alone", 0, 1, soon());
  CHECK(client.all_gather("alone", 0, 1, as_bytes("x"), soon()).size() == 1);
}

}  // namespace

TEST_CASE("every operation over TCP and over a socket pair") {
  ServerThread server;
  SUBCASE("TCP") {
    store::Client client = server.client();
    every_operation(client);
  }
  SUBCASE("TCP, with a session") {
    store::Client client = server.client(4711);
    every_operation(client);
  }
  SUBCASE("socket pair") {
    store::Client client = server.paired_client(1);
    every_operation(client);
  }
}

TEST_CASE("what waits is answered by others, and a timeout says who is missing") {
  ServerThread server;
  store::Client client = server.client();
  {
    std::jthread setter([&] { server.client().set("late", as_bytes("v")); });
    CHECK(text(client.wait("late", soon())) == "v");
  }
  {
    std::jthread pusher([&] { server.client().push("queue", as_bytes("v")); });
    CHECK(text(client.pop("queue", soon())) == "v");
  }
  const auto shortly = [] { return Clock::now() + 30ms; };
  auto [code, sentence] = failure([&] { client.wait("never", shortly()); });
  CHECK(code == Errc::timeout);
  CHECK(sentence.starts_with("wait: timed out after "));
  CHECK(sentence.ends_with(" s, waiting for 'never'"));
  const std::vector<std::string> keys{"late", "x", "y"};
  std::tie(code, sentence) = failure([&] { client.wait_all(keys, shortly()); });
  CHECK(code == Errc::timeout);
  CHECK(sentence.find("waiting for 'x' and 'y'") != std::string::npos);
  std::tie(code, sentence) = failure([&] { client.barrier("b", 1, 4, shortly()); });
  CHECK(code == Errc::timeout);
  CHECK(sentence.find("waiting for 0, 2 and 3") != std::string::npos);
  std::tie(code, sentence) = failure([&] { client.pop("empty", shortly()); });
  CHECK(code == Errc::timeout);
  CHECK(sentence.starts_with("pop: timed out after "));
  CHECK(sentence.ends_with(" s, waiting for 'empty'"));
  CHECK(failure([&] { client.watch("empty", shortly()); }).first == Errc::timeout);
}

TEST_CASE("refusals come as errors, and the client goes on") {
  store::Limits limits;
  limits.keys = 2;
  ServerThread server(limits);
  store::Client client = server.client();
  client.set("word", as_bytes("ten"));
  const auto [code, sentence] = failure([&] { client.add("word", 1); });
  CHECK(code == Errc::refused);
  CHECK(sentence.find("not a whole number") != std::string::npos);
  client.set("b", {});
  CHECK(failure([&] { client.set("c", {}); }).first == Errc::refused);
  const std::string long_key(wire::key_bytes_max + 1, 'k');
  CHECK(failure([&] { client.get(long_key); }).first == Errc::refused);
  const Bytes big(wire::value_bytes_max + 1);
  CHECK(failure([&] { client.set("b", big); }).first == Errc::refused);
  CHECK(text(client.get("word")) == "ten");
}

TEST_CASE("a client that is not welcome hears why") {
  ServerThread server;
  auto options = ServerThread::options(0);
  options.hello.job = "forbidden";
  const auto [code, sentence] =
      failure([&] { store::Client(server.connect(), options, nullptr, soon()); });
  CHECK(code == Errc::refused);
  CHECK(sentence.find("this job may not come in") != std::string::npos);
  CHECK(server.host.quiet());  // A client that was not let in does not leave.
}

TEST_CASE("many threads share a client: a waiter does not hold up others") {
  ServerThread server;
  store::Client client = server.paired_client(9);
  constexpr int threads = 8, rounds = 200;
  std::atomic<int> gathered = 0;
  {
    std::vector<std::jthread> all;
    for (int t = 0; t < threads; ++t) {
      all.emplace_back([&, t] {
        for (int i = 0; i < rounds; ++i) {
          client.add("sum", 1);
          client.barrier("round", t, threads, soon());
          const auto blobs =
              client.all_gather("g", t, threads, as_bytes(std::to_string(t)), soon());
          gathered += static_cast<int>(blobs.size());
        }
      });
    }
    all.emplace_back([&] { client.wait("end", soon()); });
    client.set("end", {});
  }
  CHECK(client.add("sum", 0) == threads * rounds);
  CHECK(gathered == threads * threads * rounds);
}

TEST_CASE("a watch tells every change in order") {
  ServerThread server;
  store::Client watcher = server.client();
  store::Client other = server.client();
  // The first watch is registered once it has seen a change, so changes are made until it has.
  std::atomic<bool> seen = false;
  std::jthread changing([&] {
    while (!seen) other.add("w", 1);
  });
  const KeyChange first = watcher.watch("w", soon());
  seen = true;
  changing.join();
  CHECK(first.key == "w");
  const auto last = other.add("w", 0);
  KeyChange change = first;
  while (text(change.value) != std::to_string(last)) {
    const auto before = std::stoll(text(change.value));
    change = watcher.watch("w", soon());
    CHECK(std::stoll(text(change.value)) - before <= 1);
  }
  other.erase("w");
  do {
    change = watcher.watch("w", soon());
  } while (change.kind == KeyChange::Kind::updated);
  CHECK(change.kind == KeyChange::Kind::deleted);
  CHECK_FALSE(change.value);
}

TEST_CASE("a leased key lives as long as its client") {
  ServerThread server;
  store::Client other = server.client();
  {
    store::Client owner = server.client(77);
    owner.set_leased("leased", as_bytes("v"), 1s);
    // Renewed by itself: it outlives its lease.
    const auto until = Clock::now() + 1200ms;
    bool lives = true;
    while (Clock::now() < until) lives = lives && other.get("leased");
    CHECK(lives);
  }
  // A goodbye ends it at once; the wait is for the goodbye to arrive.
  const auto deadline = soon();
  while (other.get("leased") && Clock::now() < deadline) std::this_thread::yield();
  CHECK_FALSE(other.get("leased"));
  CHECK(failure([&] { other.set_leased("x", {}, 1s); }).second.find("session") !=
        std::string::npos);
}

TEST_CASE("pushes arrive with their descriptors, told messages reach the host") {
  ServerThread server;
  std::mutex mutex;
  std::vector<std::string> pushed;
  std::vector<unique_fd> descriptors;
  store::Client client = server.paired_client(5, [&](const wire::FrameHeader& header,
                                                     BytesView payload, auto fds) {
    const std::lock_guard lock(mutex);
    pushed.push_back(std::to_string(static_cast<int>(header.type)) + std::string(as_text(payload)));
    for (auto& fd : fds) descriptors.push_back(std::move(fd));
  });
  CHECK(server.host.heard("hello -"));
  const auto who = server.host.last();
  server.on_loop([&](store::Server& s) {
    std::vector<unique_fd> two;
    two.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    two.emplace_back(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
    s.push(who, wire::Type::peer_lost, as_bytes("a"));
    s.push(who, wire::Type::grant, as_bytes("b"), std::move(two));
    s.push(who, wire::Type::peer_lost, as_bytes("c"));
  });
  client.get("anything");  // A reader delivers the pushes that came before.
  const std::lock_guard lock(mutex);
  CHECK(pushed == std::vector<std::string>{"68a", "64b", "68c"});
  REQUIRE(descriptors.size() == 2);
  char byte = 1;
  CHECK(::read(descriptors[0].get(), &byte, 1) == 0);
  CHECK(::read(descriptors[1].get(), &byte, 1) == 1);
  CHECK(byte == 0);
  CHECK((::fcntl(descriptors[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
  client.tell(wire::Type::report, as_bytes("oh"));
  CHECK(server.host.heard("message 67 oh"));
}

TEST_CASE("goodbye is told from a lost connection") {
  ServerThread server;
  { store::Client client = server.client(); }
  CHECK(server.host.heard("goodbye"));
  auto pair = socket_pair();
  server.on_loop([&](store::Server& s) { return s.adopt(std::move(pair.second)); });
  Bytes hello;
  wire::encode_preface(hello);
  wire::encode_frame(hello, {}, wire::Hello{});
  CHECK(::send(pair.first.get(), hello.data(), hello.size(), 0) > 0);
  CHECK(server.host.heard("hello -"));
  pair.first.reset();
  CHECK(server.host.heard("closed"));
}

TEST_CASE("when the server goes, every waiting call ends with its name") {
  auto server = std::make_unique<ServerThread>();
  store::Client client = server->client();
  std::vector<std::jthread> waiting;
  std::atomic<int> lost = 0;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&] {
      const auto [code, sentence] = failure([&] { client.wait("never", soon()); });
      if (code == Errc::peer_lost && sentence.find("the test's store") != std::string::npos) ++lost;
    });
  }
  CHECK(server->host.heard("hello -"));
  client.set("sync", {});
  server.reset();
  waiting.clear();
  CHECK(lost == 4);
  CHECK(failure([&] { client.get("k"); }).first == Errc::peer_lost);
}

TEST_CASE("a forked child may not use its parent's connection") {
  ServerThread server;
  auto client =
      std::make_unique<store::Client>(server.connect(), ServerThread::options(0), nullptr, soon());
  client->set("k", {});
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = failure([&] { client->get("k"); }).first == Errc::misuse;
    client.reset();  // Says no goodbye for the parent.
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  CHECK(client->get("k"));
}
