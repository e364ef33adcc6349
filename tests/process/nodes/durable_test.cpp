// dlaunchd with its state on disk, killed at random points: what it has answered, and jobs of
// dlaunch.
#include "tests/process/daemon.hpp"
#include "tests/process/nodes/durable_node.hpp"
#include "tests/support/expect.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
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

using namespace dlaunch;
using namespace dlaunch::process_test;
namespace request = dlaunch::store::request;
using testing::contains;
using testing::is_full;

namespace {

constexpr int jobs = 4, nodes_per_job = 16;
const int kills = is_full() ? 200 : 8;

std::string text(BytesView value) { return std::string(as_text(value)); }

/// What the nodes of one job were answered.
struct History {
  std::mutex mutex;
  std::vector<std::int64_t> sums, sizes;  ///< Of the counter, of the log.
  std::set<std::string> pushed, popped;
  std::int64_t swaps = 0;
  std::atomic<std::int64_t> counted = 0;  ///< The highest sum.

  template <class Act>
  void note(Act act) {
    const std::lock_guard lock(mutex);
    act();
  }
};

/// One node's calls, each answered before the next.
class Program {
 public:
  Program(DurableNode& node, History& history, int number)
      : node_(node), history_(history), number_(number), random_(static_cast<unsigned>(number)) {}

  void step() {
    switch (random_() % 6) {
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
      default:
        return swap();
    }
  }

 private:
  void count() {
    const auto sum = node_.ask<wire::Number>(request::Add{"n", 1}).value;
    history_.note([&] { history_.sums.push_back(sum); });
    auto highest = history_.counted.load();
    while (highest < sum && !history_.counted.compare_exchange_weak(highest, sum)) continue;
    // Nobody reads what was before something that anybody was answered.
    const auto least = history_.counted.load();
    const auto now = node_.ask<wire::Found>(request::Get{"n"});
    CHECK(std::stoll(text(now.value)) >= least);
  }
  void set() {
    const std::string key = "own/" + std::to_string(number_);
    const std::string value = std::to_string(++sets_);
    node_.ask<wire::Done>(request::Set{key, as_bytes(value)});
    CHECK(text(node_.ask<wire::Found>(request::Get{key}).value) == value);
  }
  void append() {
    const auto size = node_.ask<wire::Number>(request::Append{"log", as_bytes("12345678")}).value;
    history_.note([&] { history_.sizes.push_back(size); });
  }
  void push() {
    const std::string value = std::to_string(number_) + "/" + std::to_string(++pushes_);
    history_.note([&] { history_.pushed.insert(value); });
    node_.ask<wire::Done>(request::Push{"q", as_bytes(value)});
  }
  void pop() {
    const auto popped = node_.ask<wire::Popped>(request::TryPop{"q"});
    if (!popped.value) return;
    const std::string value = text(*popped.value);
    history_.note([&] { CHECK_MESSAGE(history_.popped.insert(value).second, value); });
  }
  void swap() {
    const auto now = node_.ask<wire::Values>(request::MultiGet{{"version"}}).values.at(0);
    const std::string before = now ? text(*now) : "0";
    const std::string after = std::to_string(std::stoll(before) + 1);
    std::optional<BytesView> expected;
    if (now) expected = as_bytes(before);
    if (node_.ask<wire::Compared>(request::CompareSet{"version", expected, as_bytes(after)})
            .stored) {
      history_.note([&] { ++history_.swaps; });
    }
  }

  DurableNode& node_;
  History& history_;
  const int number_;
  std::minstd_rand random_;
  int sets_ = 0, pushes_ = 0;
};

/// The numbers 1 to as many as there are, times `unit`, each once.
void check_each_once(std::vector<std::int64_t> numbers, std::int64_t unit) {
  std::ranges::sort(numbers);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    REQUIRE(numbers[i] == unit * static_cast<std::int64_t>(i + 1));
  }
}

void check(DurableNode& node, History& history) {
  check_each_once(history.sums, 1);
  check_each_once(history.sizes, 8);
  const auto got = [&](const std::string& key) {
    const auto value = node.ask<wire::Values>(request::MultiGet{{key}}).values.at(0);
    return value ? text(*value) : "0";
  };
  CHECK(std::stoull(got("n")) == history.sums.size());
  CHECK(std::stoll(got("version")) == history.swaps);
  for (;;) {
    const auto popped = node.ask<wire::Popped>(request::TryPop{"q"});
    if (!popped.value) break;
    CHECK(history.popped.insert(text(*popped.value)).second);
  }
  CHECK(history.popped == history.pushed);
}

/// One node makes a world of its own; returns its epoch.
std::uint64_t run_job(const Address& at, std::uint64_t session) {
  test::AgentPeer agent(at, "epochs", session);
  agent.welcome();
  agent.tell(test::node("alone", 1));
  const auto epoch = agent.hear<message::Admitted>().admission.epoch;
  agent.tell(test::ended(epoch));
  CHECK(agent.hear<message::Finished>().exit_code == 0);
  return epoch;
}

}  // namespace

TEST_CASE("a daemon that is killed at random points loses nothing that it has answered") {
  const Kept kept;
  Daemon daemon(kept.options);
  Gate gate;
  gate.open(address_of(daemon));
  std::map<int, History> histories;
  for (int job = 0; job < jobs; ++job) histories[job];
  std::vector<std::unique_ptr<DurableNode>> nodes(jobs * nodes_per_job);
  std::atomic<int> answered = 0, ready = 0;
  std::atomic<bool> stop = false;
  std::vector<std::jthread> threads;
  for (int i = 0; i < jobs * nodes_per_job; ++i) {
    threads.emplace_back([&, i] {
      const int job = i / nodes_per_job;
      auto& node = nodes[static_cast<std::size_t>(i)];
      node = std::make_unique<DurableNode>(gate, "job-" + std::to_string(job),
                                           static_cast<std::uint64_t>(1000 + i),
                                           test::node("node-" + std::to_string(i), nodes_per_job));
      ++ready;
      Program program(*node, histories[job], i);
      while (!stop) {
        program.step();
        ++answered;
      }
    });
  }
  const auto await = [&](const std::atomic<int>& count, int least) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (count < least && Clock::now() < deadline) std::this_thread::yield();
    CHECK(count >= least);
  };
  await(ready, jobs * nodes_per_job);
  const std::uint64_t memory = nodes.front()->memory();
  std::minstd_rand random(static_cast<unsigned>(answered.load()));
  std::uint64_t epoch = 0;
  for (int kill = 0; kill < kills; ++kill) {
    const auto next = run_job(address_of(daemon), static_cast<std::uint64_t>(kill + 1));
    CHECK(next > epoch);
    epoch = next;
    await(answered, answered + static_cast<int>(random() % 400));
    daemon.kill();
    daemon.start();
    gate.open(address_of(daemon));
  }
  await(answered, answered + jobs * nodes_per_job);
  stop = true;
  threads.clear();
  MESSAGE(answered.load() << " steps over " << kills << " kills");
  for (int job = 0; job < jobs; ++job) {
    DurableNode& node = *nodes[static_cast<std::size_t>(job * nodes_per_job)];
    CHECK(node.memory() == memory);
    check(node, histories[job]);
  }
  std::vector<std::jthread> ends;
  for (auto& node : nodes) ends.emplace_back([&] { node->end(); });
}

namespace {

/// Two agents with a rank each, which writes to the store and reads it all the time.
struct SteadyJob {
  SteadyJob(const Daemon& daemon, const std::string& end_file)
      : a(daemon.line("j", options("a"), program(end_file))),
        b(daemon.line("j", options("b"), program(end_file))) {
    require("tick 3\n");
  }
  static std::vector<std::string> options(const std::string& id) {
    return {"--nnodes", "2", "--node-id", id, "--node-rank", id == "a" ? "0" : "1"};
  }
  static std::vector<std::string> program(const std::string& end_file) {
    return {DLAUNCH_BINARY_DIR "/tests/steady", end_file, "20"};
  }
  void require(const std::string& words) {
    REQUIRE_MESSAGE(a.saw("rank 0 " + words), a.err());
    REQUIRE_MESSAGE(b.saw("rank 1 " + words), b.err());
  }
  /// Each rank is answered what it asks next.
  void require_progress() {
    for (Job* job : {&a, &b}) {
      const std::string rank = job == &a ? "rank 0 " : "rank 1 ";
      job->catch_up();
      const auto at = job->out().rfind(rank + "asks ");
      REQUIRE(at != std::string::npos);
      const int asked = std::atoi(job->out().c_str() + at + rank.size() + 5);
      REQUIRE_MESSAGE(job->saw(rank + "stored " + std::to_string(asked + 1) + "\n"), job->err());
    }
  }
  void end(const std::string& end_file) {
    std::ofstream(end_file) << "end";
    for (Job* job : {&a, &b}) {
      CHECK_MESSAGE(job->wait().code == 0, job->err());
      CHECK(contains(job->out(), " ends"));
      CHECK_FALSE(contains(job->out(), "LOST"));
      CHECK_FALSE(contains(job->err(), "lost rank"));
    }
  }
  Job a, b;
};

}  // namespace

TEST_CASE("jobs do not notice that the daemon is killed, and find their keys again") {
  const Kept kept;
  Daemon daemon(kept.options);
  const std::string end_file = (kept.folder.path() / "end").string();
  SteadyJob job(daemon, end_file);
  for (int kill = 0; kill < 3; ++kill) {
    daemon.kill();
    daemon.start();
    REQUIRE(job.a.saw("epoch 1 goes on with all 2 nodes", kill + 1));
    job.require_progress();
  }
  job.end(end_file);
  REQUIRE(daemon.job().saw("finished with exit code 0"));
  CHECK_FALSE(contains(job.a.err(), "has forgotten"));
}

TEST_CASE("who comes to a job that ran before a restart waits until its nodes are back") {
  const Kept kept;
  Daemon daemon(kept.options);
  const std::string end_file = (kept.folder.path() / "end").string();
  SteadyJob first(daemon, end_file);
  const pid_t agents[] = {first.a.agent(), first.b.agent()};
  for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGSTOP) == 0);
  daemon.kill();
  daemon.start();
  Job second(daemon.line("j", SteadyJob::options("a"), {"/bin/true"}));
  CHECK_MESSAGE(second.saw("waits for the nodes of the job that runs under this id"), second.err());
  for (const pid_t agent : agents) REQUIRE(::kill(agent, SIGCONT) == 0);
  CHECK_MESSAGE(second.wait().code == 64, second.err());
  REQUIRE(first.a.saw("epoch 1 goes on with all 2 nodes"));
  first.require_progress();
  first.end(end_file);
}
