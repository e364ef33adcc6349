#pragma once

#include "runtime/world/local_store.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace dlaunch::testing {

/// A membership whose news come from the test.
class FakeMembership final : public Membership {
 public:
  explicit FakeMembership(std::optional<Key> data_key = std::nullopt)
      : key_(std::move(data_key)), control_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  void lose(PeerLoss loss) {
    const std::lock_guard lock(mutex_);
    losses_.push_back(std::move(loss));
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(control_.get(), &one, sizeof one);
  }
  std::vector<std::pair<Errc, Claim>> reports() const {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  /// Called each time this rank reads its losses, on its thread. To be set before there are ranks.
  std::function<void()> at_reading;
  int drained() const {
    const std::lock_guard lock(mutex_);
    return drained_;
  }

  int fd() const override { return control_.get(); }
  std::vector<PeerLoss> losses() override {
    if (at_reading) at_reading();
    const std::lock_guard lock(mutex_);
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(control_.get(), &count, sizeof count);
    return losses_;
  }
  void report(const Error& error, const Claim& claim) noexcept override {
    const std::lock_guard lock(mutex_);
    reports_.emplace_back(error.errc(), claim);
  }
  void inquire(const std::vector<int>&) noexcept override {}
  std::optional<std::map<int, SeenDoing>> doing() const override { return std::nullopt; }
  unique_fd take_listener() override { return {}; }
  std::shared_ptr<Segment> segment() override { return segment_; }
  void share(std::shared_ptr<Segment> segment) { segment_ = std::move(segment); }
  std::optional<Key> data_key() const override { return key_; }
  void drain_output(Clock::time_point) override {
    const std::lock_guard lock(mutex_);
    ++drained_;
  }

 private:
  const std::optional<Key> key_;
  std::shared_ptr<Segment> segment_;
  mutable std::mutex mutex_;
  unique_fd control_;
  std::vector<PeerLoss> losses_;
  std::vector<std::pair<Errc, Claim>> reports_;
  int drained_ = 0;
};

/// The outcome of one rank: nothing, or the error it threw.
struct Outcome {
  std::optional<Errc> code;
  std::string text;

  bool ok() const { return !code && text.empty(); }
  bool mentions(const std::string& part) const { return text.find(part) != std::string::npos; }
};

using Body = std::function<void(const World&)>;

/// Whether all ranks as threads share a segment, as the ranks of one node do: where the environment
/// has DLAUNCH_TEST_SHARED, which lets every test run both ways.
inline bool ranks_share_memory() { return std::getenv("DLAUNCH_TEST_SHARED") != nullptr; }
/// Whether the ranks of each of several nodes do.
inline bool ranks_have_nodes() { return std::getenv("DLAUNCH_TEST_NODES") != nullptr; }

/// On which node each rank is: by the environment's DLAUNCH_TEST_NODES, which lets every test run
/// over several nodes, as far as it has ranks for them; else all are on one.
///   halves       0 0 0 1 1
///   alternating  0 1 0 1 0
///   uneven       0 0 0 1 2: half of those that are left
inline std::vector<int> nodes_of_ranks(int size) {
  const char* named = std::getenv("DLAUNCH_TEST_NODES");
  const std::string how = named != nullptr ? named : "";
  std::vector<int> nodes(static_cast<std::size_t>(size), 0);
  int first = 0, node = 0;
  for (int rank = 0; rank < size; ++rank) {
    auto& mine = nodes[static_cast<std::size_t>(rank)];
    if (how == "halves") mine = 2 * rank < size ? 0 : 1;
    if (how == "alternating") mine = rank % 2;
    if (how != "uneven") continue;
    mine = node;
    if (2 * (rank + 1 - first) < size - first) continue;
    first = rank + 1;
    ++node;
  }
  return nodes;
}

/// Gives each rank a membership, if it has none, and the ranks of each node a segment, if they have
/// none and memory is to be shared.
inline void share_memory(std::vector<std::shared_ptr<FakeMembership>>& memberships,
                         const std::vector<int>& nodes) {
  while (memberships.size() < nodes.size()) {
    memberships.push_back(std::make_shared<FakeMembership>());
  }
  std::map<int, SegmentPlan> plans;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
    plans[nodes[rank]].world_ranks.push_back(static_cast<std::int32_t>(rank));
  }
  for (auto& [node, plan] : plans) {
    if (plan.world_ranks.size() < 2) continue;
    plan.oversubscribed = nodes.size() > std::thread::hardware_concurrency();
    plan.arena_bytes = std::size_t{1} << 30;
    const auto segment = Segment::create(plan);
    for (const std::int32_t rank : plan.world_ranks) {
      auto& membership = memberships[static_cast<std::size_t>(rank)];
      if (!membership->segment()) membership->share(segment);
    }
  }
}

/// Runs `body` as ranks on these nodes, each a thread with a World of its own over one store in
/// memory.
inline std::vector<Outcome> run_ranks_on(
    const std::vector<int>& nodes, const Body& body,
    const std::vector<std::shared_ptr<FakeMembership>>& memberships = {}) {
  const auto store = std::make_shared<LocalStore>();
  std::vector<Outcome> outcomes(nodes.size());
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    WorldInfo info;
    info.rank = static_cast<int>(r);
    info.size = static_cast<int>(nodes.size());
    info.local_rank =
        static_cast<int>(std::count(nodes.begin(), nodes.begin() + info.rank, nodes[r]));
    info.local_size = static_cast<int>(std::count(nodes.begin(), nodes.end(), nodes[r]));
    info.node_rank = nodes[r];
    info.node_count = *std::max_element(nodes.begin(), nodes.end()) + 1;
    info.job = "test";
    const World world(info, store, memberships.empty() ? nullptr : memberships[r]);
    threads.emplace_back([&outcome = outcomes[r], &body, world] {
      try {
        body(world);
      } catch (const Error& error) {
        outcome = {error.errc(), error.what()};
      } catch (const std::exception& error) {
        outcome = {std::nullopt, error.what()};
      }
    });
  }
  threads.clear();  // Joins.
  return outcomes;
}

/// Runs `body` as `size` ranks where the environment says.
inline std::vector<Outcome> run_ranks(
    int size, const Body& body, std::vector<std::shared_ptr<FakeMembership>> memberships = {}) {
  const std::vector<int> nodes = nodes_of_ranks(size);
  if ((ranks_share_memory() || ranks_have_nodes()) && size > 1) share_memory(memberships, nodes);
  return run_ranks_on(nodes, body, memberships);
}

/// A point in time that threads wait for, with a deadline.
class Event {
 public:
  void set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool wait(Clock::duration timeout = std::chrono::seconds(30)) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [&] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace dlaunch::testing
