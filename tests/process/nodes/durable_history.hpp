#pragma once

#include "tests/process/nodes/durable_node.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

/// What nodes do to a daemon that must not lose anything, and whether it did.
namespace dlaunch::process_test {

inline std::string text_of(BytesView value) { return std::string(as_text(value)); }

/// What the nodes of one job were answered.
struct History {
  std::mutex mutex;
  std::vector<std::int64_t> sums, sizes;  ///< Of the counter, of the log.
  std::set<std::string> pushed, popped;
  /// What the one node that writes a key was answered for last; nullopt: it is erased.
  std::map<std::string, std::optional<std::string>> own;
  std::int64_t swaps = 0;
  std::atomic<std::int64_t> counted = 0;  ///< The highest sum.
  std::vector<int> arrived;               ///< How many have come to each meeting of all nodes.
  bool closing = false;                   ///< A node has left, so no other meeting begins.

  template <class Act>
  void note(Act act) {
    const std::lock_guard lock(mutex);
    act();
  }
  /// False where the meeting would be one that not all come to.
  bool arrive(std::size_t meeting) {
    const std::lock_guard lock(mutex);
    if (meeting == arrived.size()) {
      if (closing) return false;
      arrived.push_back(0);
    }
    ++arrived[meeting];
    return true;
  }
  /// Whether a node that was at so many meetings is awaited at none.
  bool leave(std::size_t met) {
    const std::lock_guard lock(mutex);
    closing = true;
    return met == arrived.size();
  }
};

/// One node's calls, each answered before the next.
class Program {
 public:
  Program(DurableNode& node, History& history, int number, int nodes_per_job)
      : node_(node),
        history_(history),
        number_(number),
        nodes_(nodes_per_job),
        random_(static_cast<unsigned>(number)) {}

  void step() {
    constexpr int meets_each = 6;
    if (++steps_ % meets_each == 0) return meet();
    switch (random_() % 9) {
      case 0:
        return count();
      case 1:
        return set();
      case 2:
        return append();
      case 3:
        return push();
      case 4:
        return pop();
      case 5:
        return set_leased();
      case 6:
        return set_two();
      case 7:
        return set_or_erase();
      default:
        return swap();
    }
  }
  bool may_leave() const { return history_.leave(met_); }

 private:
  /// With all other nodes of the job, in a barrier and in an all_gather by turns. None is answered
  /// before the last one has come, however often the daemon was killed meanwhile.
  void meet() {
    if (!history_.arrive(met_)) return;
    const std::int32_t self = number_ % nodes_;
    const std::uint64_t round = met_ / 2;
    if (met_ % 2 == 0) {
      node_.ask<wire::Done>(store::request::Barrier{"barrier", round, nodes_, {}, {self}});
    } else {
      const std::string told = told_by(self);
      const auto heard = node_.ask<wire::Gathered>(
          store::request::AllGather{"gather", round, nodes_, {}, {self}, {as_bytes(told)}});
      CHECK(heard.blobs.size() == static_cast<std::size_t>(nodes_));
      for (std::int32_t i = 0; const BytesView blob : heard.blobs) {
        CHECK(text_of(blob) == told_by(i++));
      }
    }
    history_.note([&] { CHECK(history_.arrived[met_] == nodes_); });
    ++met_;
  }
  /// What a node of this job contributes to this meeting.
  std::string told_by(std::int32_t node) const {
    return std::to_string(number_ - number_ % nodes_ + node) + "/" + std::to_string(met_);
  }
  void count() {
    const auto sum = node_.ask<wire::Number>(store::request::Add{"n", 1}).value;
    history_.note([&] { history_.sums.push_back(sum); });
    auto highest = history_.counted.load();
    while (highest < sum && !history_.counted.compare_exchange_weak(highest, sum)) continue;
    // Nobody reads what was before something that anybody was answered.
    const auto least = history_.counted.load();
    const auto now = node_.ask<wire::Found>(store::request::Get{"n"});
    CHECK(std::stoll(text_of(now.value)) >= least);
  }
  std::string own_key(const char* part) const {
    return "own/" + std::to_string(number_) + "/" + part;
  }
  void note_own(const std::string& key, std::optional<std::string> value) {
    history_.note([&] { history_.own[key] = std::move(value); });
  }
  void set() {
    const std::string key = own_key("plain"), value = std::to_string(++sets_);
    node_.ask<wire::Done>(store::request::Set{key, as_bytes(value)});
    note_own(key, value);
    CHECK(text_of(node_.ask<wire::Found>(store::request::Get{key}).value) == value);
  }
  /// It lives as long as the node comes back, since the lease is longer than any test.
  void set_leased() {
    constexpr std::uint64_t hour_ms = 3'600'000;
    const std::string key = own_key("leased"), value = std::to_string(++sets_);
    node_.ask<wire::Done>(store::request::SetLeased{key, as_bytes(value), hour_ms});
    note_own(key, value);
  }
  void set_two() {
    const std::string keys[] = {own_key("left"), own_key("right")};
    const std::string value = std::to_string(++sets_);
    node_.ask<wire::Done>(
        store::request::MultiSet{{keys[0], keys[1]}, {as_bytes(value), as_bytes(value)}});
    for (const auto& key : keys) note_own(key, value);
  }
  void set_or_erase() {
    const std::string key = own_key("erased"), value = std::to_string(++sets_);
    if (sets_ % 2 == 0) {
      node_.ask<wire::Done>(store::request::Set{key, as_bytes(value)});
      return note_own(key, value);
    }
    node_.ask<wire::Number>(store::request::Erase{key});
    note_own(key, std::nullopt);
  }
  void append() {
    const auto size =
        node_.ask<wire::Number>(store::request::Append{"log", as_bytes("12345678")}).value;
    history_.note([&] { history_.sizes.push_back(size); });
  }
  void push() {
    const std::string value = std::to_string(number_) + "/" + std::to_string(++pushes_);
    history_.note([&] { history_.pushed.insert(value); });
    node_.ask<wire::Done>(store::request::Push{"q", as_bytes(value)});
  }
  void pop() {
    const auto popped = node_.ask<wire::Popped>(store::request::TryPop{"q"});
    if (!popped.value) return;
    const std::string value = text_of(*popped.value);
    history_.note([&] { CHECK_MESSAGE(history_.popped.insert(value).second, value); });
  }
  void swap() {
    const auto now = node_.ask<wire::Values>(store::request::MultiGet{{"version"}}).values.at(0);
    const std::string before = now ? text_of(*now) : "0";
    const std::string after = std::to_string(std::stoll(before) + 1);
    std::optional<BytesView> expected;
    if (now) expected = as_bytes(before);
    if (node_.ask<wire::Compared>(store::request::CompareSet{"version", expected, as_bytes(after)})
            .stored) {
      history_.note([&] { ++history_.swaps; });
    }
  }

  DurableNode& node_;
  History& history_;
  const int number_, nodes_;
  std::minstd_rand random_;
  int steps_ = 0, sets_ = 0, pushes_ = 0;
  std::size_t met_ = 0;
};

/// The numbers 1 to as many as there are, times `unit`, each once.
inline void check_each_once(std::vector<std::int64_t> numbers, std::int64_t unit) {
  std::ranges::sort(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    REQUIRE(numbers[i] == unit * static_cast<std::int64_t>(i + 1));
  }
}

inline void check_history(DurableNode& node, History& history, int nodes) {
  check_each_once(history.sums, 1);
  check_each_once(history.sizes, 8);
  const auto got = [&](const std::string& key) -> std::optional<std::string> {
    const auto value = node.ask<wire::Values>(store::request::MultiGet{{key}}).values.at(0);
    if (!value) return std::nullopt;
    return text_of(*value);
  };
  CHECK(std::stoull(got("n").value_or("0")) == history.sums.size());
  CHECK(std::stoll(got("version").value_or("0")) == history.swaps);
  for (const auto& [key, value] : history.own) CHECK_MESSAGE(got(key) == value, key);
  for (;;) {
    const auto popped = node.ask<wire::Popped>(store::request::TryPop{"q"});
    if (!popped.value) break;
    CHECK(history.popped.insert(text_of(*popped.value)).second);
  }
  CHECK(history.popped == history.pushed);
  MESSAGE(history.arrived.size() << " meetings");
  for (const int arrived : history.arrived) CHECK(arrived == nodes);
}

/// Nodes of several jobs that call a daemon all the time, while it is killed and started again.
class DurableLoad {
 public:
  DurableLoad(Gate& gate, int jobs, int nodes_per_job)
      : histories_(static_cast<std::size_t>(jobs)), nodes_per_job_(nodes_per_job) {
    nodes_.resize(static_cast<std::size_t>(jobs * nodes_per_job));
    for (int i = 0; i < jobs * nodes_per_job; ++i) {
      threads_.emplace_back([this, &gate, i] { work(gate, i); });
    }
    await(ready_, jobs * nodes_per_job);
    memory_ = nodes_.front()->memory();
  }
  ~DurableLoad() { stop_ = true; }

  int answered() const { return answered_; }
  /// So many more calls are answered.
  void await_steps(int steps) { await(answered_, answered_ + steps); }
  /// No more calls; checks what was answered, and that no node found a daemon without memory of it.
  void stop_and_check() {
    stop_ = true;
    threads_.clear();
    MESSAGE(answered_.load() << " steps");
    for (std::size_t job = 0; job < histories_.size(); ++job) {
      DurableNode& node = *nodes_[job * static_cast<std::size_t>(nodes_per_job_)];
      CHECK(node.memory() == memory_);
      check_history(node, histories_[job], nodes_per_job_);
    }
    for (auto& node : nodes_) threads_.emplace_back([&node] { node->end(); });
    threads_.clear();
  }

 private:
  void work(Gate& gate, int number) {
    const int job = number / nodes_per_job_;
    auto& node = nodes_[static_cast<std::size_t>(number)];
    node = std::make_unique<DurableNode>(
        gate, "job-" + std::to_string(job), static_cast<std::uint64_t>(1000 + number),
        test::node("node-" + std::to_string(number), nodes_per_job_));
    ++ready_;
    Program program(*node, histories_[static_cast<std::size_t>(job)], number, nodes_per_job_);
    while (!stop_ || !program.may_leave()) {
      program.step();
      ++answered_;
    }
  }
  static void await(const std::atomic<int>& count, int least) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (count < least && Clock::now() < deadline) std::this_thread::yield();
    CHECK(count >= least);
  }

  std::vector<History> histories_;
  const int nodes_per_job_;
  std::vector<std::unique_ptr<DurableNode>> nodes_;
  std::uint64_t memory_ = 0;
  std::atomic<int> answered_ = 0, ready_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace dlaunch::process_test
