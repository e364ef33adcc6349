// The thread that writes, and the loop that must not wait for it.
#include "rendezvous/state/state_journal.hpp"
#include "tests/support/store_server.hpp"

#include <atomic>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using namespace std::chrono_literals;

namespace {

/// A disk of which the test says whether it is full.
class Disk final : public StatePlace {
 public:
  explicit Disk(const std::atomic<bool>& full) : full_(full) {}

  StateContents load() override { return {}; }
  std::size_t changes_at_once() const override { return ~std::size_t{0}; }
  Wrote write(std::span<const Change>) override { return full_ ? Wrote::not_now : Wrote::all; }
  Clock::time_point tend() override { return Clock::time_point::max(); }
  Obstacle obstacle() const override {
    return full_ ? Obstacle{"the disk is full", "the disk has room", true} : Obstacle{};
  }
  std::unique_ptr<Backup> back_up(const std::string&) override { throw std::bad_alloc(); }
  bool is_ours() const override { return true; }
  std::optional<StateFigures::Lead> lead() const override { return std::nullopt; }

 private:
  const std::atomic<bool>& full_;
};

}  // namespace

TEST_CASE("the ends of 8,000 leases do not have the loop wait for a full disk") {
  std::atomic<bool> full = false;
  boost::asio::io_context io;
  StateJournal journal(io, std::make_unique<Disk>(full), [](const LogLine&) {});
  store::Commits& commits = *journal.commits();
  store::KeptSpace kept = journal.space("job", 1, 1);
  store::KeyValues values;
  values.log_to(*kept.journal);
  store::Effects out;
  constexpr int leases = 8000;
  for (int i = 0; i < leases; ++i) {
    values.set_leased({1, 1}, "k" + std::to_string(i), {}, 7, 1s, {}, out);
    commits.seal();
  }
  REQUIRE(journal.await_durable(commits.recorded(), test::soon()));
  full = true;
  auto ended = std::async(std::launch::async, [&] {
    for (auto now = Clock::time_point{2s}; values.size() > 0; now += 1ms) {
      out.clear();
      values.tick(now, out);
      commits.seal();
    }
  });
  const bool in_time = ended.wait_until(test::soon()) == std::future_status::ready;
  CHECK(in_time);
  CHECK(journal.refusal() == "the disk is full");
  full = false;
  ended.get();
  CHECK(journal.await_durable(commits.recorded(), test::soon()));
  CHECK(journal.refusal().empty());
}

TEST_CASE("a backup for which there is no memory fails, and the state is written on") {
  const std::atomic<bool> full = false;
  boost::asio::io_context io;
  const auto work = boost::asio::make_work_guard(io);
  std::string said;
  StateJournal journal(io, std::make_unique<Disk>(full),
                       [&](const LogLine& line) { said = line.sentence; });
  CHECK(journal.back_up("night").empty());
  while (said.empty()) REQUIRE(io.run_one_until(test::soon()) == 1);
  CHECK(said == "backup 'night' failed: std::bad_alloc");
  // The line may come before the state of it.
  const auto deadline = test::soon();
  while (journal.backup().state == BackupStatus::State::under_way && Clock::now() < deadline) {
    std::this_thread::yield();
  }
  CHECK(journal.backup().state == BackupStatus::State::failed);
  CHECK(journal.backup().sentence == "std::bad_alloc");
  journal.job_opened("job", 1);
  journal.commits()->seal();
  CHECK(journal.await_durable(journal.commits()->recorded(), test::soon()));
}

namespace {

/// A disk whose writes wait for the test.
class Stalled final : public StatePlace {
 public:
  explicit Stalled(std::shared_future<void> goes_on) : goes_on_(std::move(goes_on)) {}

  StateContents load() override { return {}; }
  std::size_t changes_at_once() const override { return ~std::size_t{0}; }
  Wrote write(std::span<const Change> /*changes*/) override {
    goes_on_.wait();
    return Wrote::all;
  }
  Clock::time_point tend() override { return Clock::time_point::max(); }
  Obstacle obstacle() const override { return {}; }
  std::unique_ptr<Backup> back_up(const std::string& /*name*/) override { return nullptr; }
  bool is_ours() const override { return true; }
  std::optional<StateFigures::Lead> lead() const override { return std::nullopt; }

 private:
  const std::shared_future<void> goes_on_;
};

}  // namespace

TEST_CASE("a write that hangs is told, and changes wait for it") {
  std::promise<void> disk;
  boost::asio::io_context io;
  const auto work = boost::asio::make_work_guard(io);
  std::string said;
  StateJournal journal(io, std::make_unique<Stalled>(disk.get_future().share()),
                       [&](const LogLine& line) { said = line.sentence; });
  const auto await_line = [&](const std::string& line) {
    while (said != line) REQUIRE(io.run_one_until(test::soon()) == 1);
  };
  CHECK_FALSE(journal.held_since());
  const auto before = Clock::now();
  journal.job_opened("job", 1);
  journal.commits()->seal();
  await_line("writing the state hangs: changes wait until it goes on");
  CHECK(journal.trouble() == said);
  CHECK(journal.refusal().empty());
  CHECK(journal.figures()->blocked);
  CHECK(journal.held_since().value_or(before) > before);
  disk.set_value();
  await_line("the state is written again");
  CHECK(journal.trouble().empty());
  CHECK_FALSE(journal.figures()->blocked);
  CHECK_FALSE(journal.held_since());
}
