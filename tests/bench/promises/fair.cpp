// What one job of a daemon suffers while another one attacks: the time that a set and a get of a
// witness take, before the attack and during it.   fair PORT ATTACK, one of those that main names.
//
// It prints one line: "baseline MS during MS longest MS attack S newcomer MS"; the first two are
// the 99th percentile.
#include "tests/bench/promises/fair_peer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace dlaunch;
using namespace std::chrono_literals;
using bench::Peer;
using Milliseconds = std::chrono::duration<double, std::milli>;

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
      if (peer_.refused()) throw std::runtime_error("the daemon refuses the witness");
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
constexpr int named_jobs = 100;
constexpr int deaf_readers = 50;
constexpr std::size_t deaf_value_bytes = 1u << 20;
constexpr std::size_t filling_keys = 1500;  ///< More than any memory-max of such a daemon takes.
constexpr std::size_t filling_bytes = 64u << 10;
constexpr int ghosts_at_once = 64;
constexpr int round_nodes = 2000;
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

/// They say one thing after the other, as fast as they may.
void flood(std::vector<Peer>& crowd) {
  Bytes said;
  while (said.size() < (64u << 10)) crowd.front().append(said, wire::Get{"key"});
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) {
    for (Peer& each : crowd) each.push(said);
  }
}

/// Gets of a large value, without end, by many who never read.
void leave_unread(const Address& daemon, Peer& attacker) {
  attacker.ask(wire::Set{"key", Bytes(deaf_value_bytes)});
  std::vector<Peer> deaf;
  for (int i = 0; i < deaf_readers; ++i) {
    deaf.emplace_back(daemon, "attacker", 0);
    deaf.back().read_little();
  }
  Bytes said;
  while (said.size() < (64u << 10)) attacker.append(said, wire::Get{"key"});
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) {
    for (Peer& each : deaf) each.stuff(said);
  }
}

/// More than there is memory for.
Bytes many_sets(Peer& attacker) {
  Bytes out;
  out.reserve(filling_keys * (filling_bytes + 64));
  const Bytes value(filling_bytes);
  for (const auto& key : many_keys(filling_keys, "full-")) {
    attacker.append(out, wire::Set{key, value});
  }
  return out;
}

/// Says so over and over, whatever is refused.
void fill_memory(Peer& attacker, const Bytes& said) {
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) attacker.push(said);
}

/// One job after the other begins, with a long lease, and its node hangs up.
void haunt(const Address& daemon) {
  std::uint64_t session = 1000;
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) {
    std::vector<Peer> ghosts;
    for (int i = 0; i < ghosts_at_once; ++i) {
      ++session;
      ghosts.emplace_back(daemon, "ghost-" + std::to_string(session), session).say_join(1);
    }
  }
}

/// The nodes of a big job, in its first epoch.
std::deque<Peer> big_job(const Address& daemon) {
  std::deque<Peer> nodes;
  for (int i = 0; i < round_nodes; ++i) {
    nodes.emplace_back(daemon, "big", static_cast<std::uint64_t>(1000 + i)).welcome();
    nodes.back().say_join(round_nodes);
  }
  for (Peer& each : nodes) each.await_epoch();
  return nodes;
}

/// The job fails and begins its next epoch, over and over.
void fail_rounds(std::deque<Peer>& nodes) {
  for (const auto end = Clock::now() + flood_time; Clock::now() < end;) {
    for (Peer& each : nodes) each.say_failed();
    for (Peer& each : nodes) each.await_epoch();
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    throw std::runtime_error(
        "fair PORT list|pages|barriers|waits|looks|gets|sets|flood|names|jobs|unread|full|ghosts|"
        "rounds|joins");
  }
  const Address daemon = resolve("127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[1]))).at(0);
  const std::string_view attack = argv[2];
  Peer attacker(daemon, "attacker", 2);
  attacker.join();
  if (attack == "list" || attack == "pages") fill(attacker, listed_keys);
  if (attack == "gets" || attack == "looks") fill(attacker, keys_at_once);
  std::vector<Peer> flooding;
  if (attack == "flood") {
    for (int i = 0; i < flooders; ++i) flooding.emplace_back(daemon, "attacker", 0);
  }
  if (attack == "names" || attack == "jobs") {
    const int names = attack == "jobs" ? named_jobs : flooders;
    for (int i = 0; i < names; ++i) {
      flooding.emplace_back(daemon, "attacker-" + std::to_string(i), std::uint64_t(1000 + i));
      if (attack == "jobs") flooding.back().join();
    }
  }
  Bytes filling;
  if (attack == "full") filling = many_sets(attacker);
  std::deque<Peer> nodes;
  if (attack == "rounds") nodes = big_job(daemon);
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
  if (!flooding.empty()) flood(flooding);
  if (attack == "unread") leave_unread(daemon, attacker);
  if (attack == "full") fill_memory(attacker, filling);
  if (attack == "ghosts") haunt(daemon);
  if (attack == "rounds") fail_rounds(nodes);
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
