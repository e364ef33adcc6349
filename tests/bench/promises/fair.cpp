// What one job of a daemon suffers while another one attacks: the time that a set and a get of a
// witness take, before the attack and during it.   fair PORT ATTACK, one of those that main names.
//
// It prints one line: "baseline MS during MS longest MS attack S newcomer MS"; the first two are
// the 99th percentile.
#include "rendezvous/service/messages.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/protocol/wire.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace std::chrono_literals;
namespace message = rendezvous::message;
using Milliseconds = std::chrono::duration<double, std::milli>;

/// A connection to the daemon; blocking, with a limit on every wait.
class Peer {
 public:
  Peer(const Address& daemon, const std::string& job, std::uint64_t session)
      : fd_(connect_tcp(daemon, Clock::now() + 30s)), job_(job) {
    set_nonblocking(fd_.get(), false);
    const timeval limit{120, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    const int one = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    Bytes out;
    wire::encode_preface(out);
    wire::Hello hello;
    hello.session = session;
    hello.job = job;
    wire::encode_frame(out, {}, hello);
    send(out);
  }
  /// Has become the only node of its job.
  void join() {
    read(wire::preface_bytes);
    await(wire::Type::welcome);
    message::Join join;
    join.offer.id = join.offer.host = "node-of-" + job_;
    join.offer.workers = 8;
    join.rules.nodes_min = join.rules.nodes_max = 1;
    join.version = "bench";
    // Nobody sends heartbeats while the daemon works off what is measured.
    join.rules.liveness.lease = 10min;
    Bytes payload, out;
    message::encode(payload, join);
    wire::encode_frame(out, {0, message::Join::type, 0, 0, 0}, payload);
    send(out);
    await(message::Admitted::type);
  }
  template <class Message>
  void append(Bytes& out, const Message& what) {
    wire::encode_frame(out, {0, Message::type, 0, ++request_, 0}, what);
  }
  /// Requests without a wait for their answers.
  void send(BytesView bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) throw std::runtime_error("the daemon has closed a connection");
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }
  /// Says the bytes over and over, as far as the daemon takes them, and forgets the answers.
  void push(BytesView bytes) {
    std::array<std::byte, 4096> some;
    while (::recv(fd_.get(), some.data(), some.size(), MSG_DONTWAIT) > 0) continue;
    const BytesView rest = bytes.subspan(pushed_);
    const ssize_t n = ::send(fd_.get(), rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) throw std::runtime_error("the daemon has closed a connection");
    if (n > 0) pushed_ = (pushed_ + static_cast<std::size_t>(n)) % bytes.size();
  }
  /// Takes so many answers; each is one frame.
  void take(std::size_t answers) {
    while (answers > 0) {
      const auto header = wire::decode_header(read(wire::header_bytes));
      read(header.length);
      if (header.request != 0) --answers;
    }
  }
  template <class Message>
  void ask(const Message& what) {
    Bytes out;
    append(out, what);
    send(out);
    take(1);
  }
  /// Whether the daemon closes it within the limit.
  bool closed_within(std::chrono::seconds limit) {
    const timeval time{limit.count(), 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    std::array<std::byte, 4096> some;
    ssize_t n = 0;
    while ((n = ::recv(fd_.get(), some.data(), some.size(), 0)) > 0) continue;
    return n == 0;
  }

 private:
  void await(wire::Type type) {
    for (;;) {
      const auto header = wire::decode_header(read(wire::header_bytes));
      read(header.length);
      if (header.type == type) return;
      if (header.type == wire::Type::failed || header.type == message::Refused::type) {
        throw std::runtime_error("the daemon refuses " + job_);
      }
    }
  }
  BytesView read(std::size_t size) {
    if (unread_.size() < size) unread_.resize(size);
    std::size_t got = 0;
    while (got < size) {
      const ssize_t n = ::recv(fd_.get(), unread_.data() + got, size - got, 0);
      if (n <= 0) throw std::runtime_error("the daemon does not answer, or has hung up");
      got += static_cast<std::size_t>(n);
    }
    return BytesView(unread_).first(size);
  }

  unique_fd fd_;
  std::string job_;
  std::uint64_t request_ = 1;
  Bytes unread_;
  std::size_t pushed_ = 0;  ///< Of what is pushed now.
};

/// Sets and gets a key until it is stopped.
class Witness {
  static constexpr auto period = 20ms;

 public:
  explicit Witness(const Address& daemon) : peer_(daemon, "witness", 1) { peer_.join(); }

  template <class IsOver>
  std::vector<double> measure(IsOver is_over) {
    std::vector<double> times;
    // One is due every so often, and is late where the one before it was: what stands still for a
    // second spoils many. A pair takes a sync or two where the state is on disk, 4 ms each; were
    // they due as often, each would be later than the one before it, whatever the daemon does.
    for (auto due = Clock::now(); !is_over(); due += period) {
      std::this_thread::sleep_until(due);
      peer_.ask(wire::Set{"key", as_bytes("value")});
      peer_.ask(wire::Get{"key"});
      times.push_back(Milliseconds(Clock::now() - due).count());
    }
    return times;
  }

 private:
  Peer peer_;
};

double p99(std::vector<double> times) {
  if (times.empty()) return 0;
  std::ranges::sort(times);
  return times[times.size() * 99 / 100];
}

std::vector<std::string> many_keys(std::size_t count, const std::string& prefix) {
  std::vector<std::string> keys;
  keys.reserve(count);
  for (std::size_t i = 0; i < count; ++i) keys.push_back(prefix + std::to_string(1'000'000 + i));
  return keys;
}

// ---- The attacks: what comes before each, and the attack itself ----

constexpr int storms = 500;
constexpr std::size_t listed_keys = 1'000'000;
constexpr std::size_t awaited_keys = 100'000;
constexpr int waits = 60;
constexpr int strangers = 200;
constexpr int flooders = 500;
constexpr auto flood_time = 3s;
constexpr auto quiet_time = 3s;
constexpr std::size_t keys_at_once = 128u << 10;  ///< The most that one request may name.
constexpr int bulks = 40;
constexpr int contributors = 4096;  ///< More are refused, as this world is small.

/// So many keys, a few at a time, so that the witness' baseline is what it is beside them.
void fill(Peer& attacker, std::size_t count) {
  const auto names = many_keys(count, "key-");
  constexpr std::size_t at_once = 1000;
  for (std::size_t i = 0; i < names.size(); i += at_once) {
    wire::MultiSet set;
    for (std::size_t k = i; k < std::min(i + at_once, names.size()); ++k) {
      set.keys.push_back(names[k]);
      set.values.push_back(as_bytes("v"));
    }
    attacker.ask(set);
  }
}

/// What the attacker says, made before it is measured.
Bytes list_storm(Peer& attacker) {
  Bytes out;
  for (int i = 0; i < storms; ++i) attacker.append(out, wire::List{"k"});
  return out;
}

/// The same as a client of today asks.
Bytes page_storm(Peer& attacker) {
  Bytes out;
  for (int i = 0; i < storms; ++i) attacker.append(out, wire::ListPage{"k", {}});
  return out;
}

Bytes late_barriers(Peer& attacker) {
  Bytes out;
  for (int i = 0; i < storms; ++i) {
    const std::string name = "b" + std::to_string(i);
    attacker.append(out, wire::Barrier{name, 0, contributors, {1'000'000}, {0}});
  }
  return out;
}

Bytes long_waits(Peer& attacker) {
  const auto names = many_keys(awaited_keys, "awaited-");
  const wire::Wait wait{{2'000'000}, {names.begin(), names.end()}};
  Bytes out;
  for (int i = 0; i < waits; ++i) attacker.append(out, wait);
  return out;
}

template <class Message>
Bytes bulk_storm(Peer& attacker) {
  const auto names = many_keys(keys_at_once, "key-");
  Message message;
  message.keys.assign(names.begin(), names.end());
  if constexpr (requires { message.values; }) message.values.assign(names.size(), as_bytes("v"));
  Bytes out;
  for (int i = 0; i < bulks; ++i) attacker.append(out, message);
  return out;
}

/// Many connections of the attacker's job that say one thing after the other, as fast as they may.
void flood(const Address& daemon) {
  std::vector<Peer> crowd;
  for (int i = 0; i < flooders; ++i) crowd.emplace_back(daemon, "attacker", 0);
  Bytes said;
  while (said.size() < (64u << 10)) crowd.front().append(said, wire::Get{"key"});
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) {
    for (Peer& each : crowd) each.push(said);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    throw std::runtime_error("fair PORT list|pages|barriers|waits|looks|gets|sets|flood|joins");
  }
  const Address daemon = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const std::string_view attack = argv[2];
  Peer attacker(daemon, "attacker", 2);
  attacker.join();
  if (attack == "list" || attack == "pages") fill(attacker, listed_keys);
  if (attack == "gets" || attack == "looks") fill(attacker, keys_at_once);
  Witness witness(daemon);
  Bytes said;
  std::size_t answers = storms;
  if (attack == "list") said = list_storm(attacker);
  if (attack == "pages") said = page_storm(attacker);
  if (attack == "barriers") said = late_barriers(attacker);
  if (attack == "waits") said = long_waits(attacker), answers = waits;
  if (attack == "gets" || attack == "sets" || attack == "looks") answers = bulks;
  if (attack == "gets") said = bulk_storm<wire::MultiGet>(attacker);
  if (attack == "sets") said = bulk_storm<wire::MultiSet>(attacker);
  if (attack == "looks") said = bulk_storm<wire::Wait>(attacker);

  const auto quiet_end = Clock::now() + quiet_time;
  const auto before = witness.measure([&] { return Clock::now() >= quiet_end; });

  const auto begin = Clock::now();
  std::atomic<bool> attacked = false;
  std::vector<double> during;
  // What the attack leaves behind counts, too.
  std::jthread measured(
      [&] { during = witness.measure([&] { return attacked && Clock::now() >= begin + 1s; }); });
  // The attackers sit on other machines: here they leave the processors to the daemon.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 19);
  double newcomer = 0;
  std::vector<Peer> crowd;
  if (!said.empty()) {
    // It is read while it is said: a daemon that waits for its reader takes up nothing more.
    std::jthread said_at_once([&] { attacker.send(said); });
    attacker.take(answers);
  }
  if (attack == "flood") flood(daemon);
  if (attack == "joins") {
    for (int i = 0; i < strangers; ++i) {
      crowd.emplace_back(daemon, "stranger", static_cast<std::uint64_t>(100 + i));
    }
    const auto came = Clock::now();
    Peer(daemon, "newcomer", 3).join();
    newcomer = Milliseconds(Clock::now() - came).count();
  }
  const double took = std::chrono::duration<double>(Clock::now() - begin).count();
  attacked = true;
  measured.join();
  std::printf("baseline %.3f during %.3f longest %.3f attack %.2f newcomer %.1f\n", p99(before),
              p99(during), *std::ranges::max_element(during), took, newcomer);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "fair: %s\n", error.what());
  return 1;
}
