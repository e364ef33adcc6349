// Seeded random histories over two agents whose connections are cut all the time: each worker
// compares what it is answered with a plain model of the keys that are its own, and what all share
// is counted in the end.
#include "tests/support/relay_node.hpp"
#include "tests/support/store_server.hpp"
#include "tests/support/tcp_proxy.hpp"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::test;

namespace {

constexpr int ranks = 4;
constexpr int steps = 250;
constexpr int steps_per_barrier = 25;

/// Counts of what all workers do together.
struct Shared {
  std::atomic<int> done = 0;  ///< Steps, of all workers.
  std::atomic<int> added = 0;
  std::mutex mutex;
  std::multiset<std::string> pushed, popped;
  std::vector<std::string> wrong;

  void expect(const std::string& what, const std::string& is, const std::string& should) {
    if (is == should) return;
    const std::lock_guard lock(mutex);
    wrong.push_back(what + " is " + is + ", not " + should);
  }
};

class Worker {
 public:
  Worker(store::Client& client, int rank, unsigned seed, Shared& shared)
      : client_(client), rank_(rank), shared_(shared), random_(seed * 100 + unsigned(rank)) {}

  void run() {
    for (int step = 0; step < steps; ++step) {
      one(step);
      if (step % steps_per_barrier == 0) meet(step);
      ++shared_.done;
    }
  }

 private:
  unsigned below(unsigned bound) { return static_cast<unsigned>(random_() % bound); }
  std::string value_of(const std::string& key) const {
    const auto found = model_.find(key);
    return found == model_.end() ? "(absent)" : found->second;
  }

  void one(int step) {
    const std::string key = std::to_string(rank_) + "/" + std::string(1, char('a' + below(4)));
    const std::string value = std::to_string(below(1000));
    switch (below(9)) {
      case 0:
        client_.set(key, as_bytes(value));
        model_[key] = value;
        break;
      case 1:
        shared_.expect("get " + key, text(client_.get(key)), value_of(key));
        break;
      case 2:
        model_[key] += value;
        shared_.expect("append " + key, std::to_string(client_.append(key, as_bytes(value))),
                       std::to_string(model_[key].size()));
        break;
      case 3:
        shared_.expect("erase " + key, std::to_string(client_.erase(key)),
                       std::to_string(model_.erase(key)));
        break;
      case 4: {
        const bool stored = client_.compare_set(key, std::nullopt, as_bytes(value));
        shared_.expect("compare_set " + key, std::to_string(stored),
                       std::to_string(!model_.contains(key)));
        model_.emplace(key, value);
        break;
      }
      case 5:
        client_.add("sum", 1);
        ++shared_.added;
        break;
      case 6: {
        const std::string own = std::to_string(rank_) + "." + std::to_string(step);
        client_.push("queue", as_bytes(own));
        const std::lock_guard lock(shared_.mutex);
        shared_.pushed.insert(own);
        break;
      }
      case 7:
        if (const auto got = client_.try_pop("queue")) {
          const std::lock_guard lock(shared_.mutex);
          shared_.popped.insert(text(got));
        }
        break;
      case 8: {
        // A queue of its own: what is pushed first comes first.
        const std::string queue = "queue/" + std::to_string(rank_);
        client_.push(queue, as_bytes(value));
        client_.push(queue, as_bytes("second"));
        shared_.expect("pop", text(client_.pop(queue, soon())), value);
        shared_.expect("pop", text(client_.pop(queue, soon())), "second");
        break;
      }
    }
  }

  void meet(int step) {
    const std::string all = std::to_string(step);
    const std::string key = "met/" + all + "/";
    client_.set(key + std::to_string(rank_), as_bytes(all));
    client_.barrier("barrier", rank_, ranks, soon());
    const auto blobs = client_.all_gather("gather", rank_, ranks, as_bytes(all), soon());
    for (int other = 0; other < ranks; ++other) {
      shared_.expect("gathered", text(blobs.at(static_cast<std::size_t>(other))), all);
      shared_.expect("met", text(client_.wait(key + std::to_string(other), soon())), all);
    }
  }

  store::Client& client_;
  const int rank_;
  Shared& shared_;
  std::mt19937 random_;
  std::map<std::string, std::string> model_;
};

void cut_at_random(std::vector<std::unique_ptr<TcpProxy>>& proxies, unsigned seed,
                   const Shared& shared) {
  std::mt19937 random(seed);
  for (int at = 0; at < ranks * steps; at += 1 + static_cast<int>(random() % 40)) {
    while (shared.done < at) std::this_thread::yield();
    TcpProxy& proxy = *proxies.at(random() % proxies.size());
    const int before = proxy.accepted();
    proxy.cut();
    const auto deadline = soon();
    while (proxy.accepted() == before) {
      if (Clock::now() > deadline) FAIL("no reconnect within 20 s");
    }
  }
}

}  // namespace

TEST_CASE("nothing is lost or counted twice, however often the connections are cut") {
  for (unsigned seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    ServerThread server;
    std::vector<std::unique_ptr<TcpProxy>> proxies;
    std::vector<std::unique_ptr<RelayNode>> nodes;
    std::vector<std::unique_ptr<store::Client>> clients;
    for (int node = 0; node < 2; ++node) {
      proxies.push_back(std::make_unique<TcpProxy>(server.native_address));
      nodes.push_back(std::make_unique<RelayNode>(proxies.back()->address(), node * 2, 2, ranks,
                                                  900 + static_cast<std::uint64_t>(node)));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      clients.push_back(nodes.at(static_cast<std::size_t>(rank / 2))->client(rank));
    }
    Shared shared;
    {
      std::vector<std::jthread> threads;
      for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
          try {
            Worker(*clients.at(static_cast<std::size_t>(rank)), rank, seed, shared).run();
          } catch (const Error& error) {
            shared.expect("rank " + std::to_string(rank), error.what(), "well");
            shared.done = ranks * steps;
          }
        });
      }
      cut_at_random(proxies, seed, shared);
    }
    store::Client& last = *clients.front();
    while (const auto got = last.try_pop("queue")) shared.popped.insert(text(got));
    CHECK(shared.popped == shared.pushed);
    CHECK(text(last.get("sum")) == std::to_string(shared.added));
    CHECK(shared.wrong == std::vector<std::string>{});
    if (!shared.wrong.empty()) return;
  }
}
