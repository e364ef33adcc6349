// The thread that writes, and the loop that must not wait for it.
#include "rendezvous/state/state_journal.hpp"
#include "tests/support/store_server.hpp"

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>

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
    return full_ ? Obstacle{"the disk is full", "the disk has room"} : Obstacle{};
  }
  std::unique_ptr<Backup> back_up(const std::string&) override { return nullptr; }
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
