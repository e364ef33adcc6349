// A state file and rows of etcd hold the same after the same changes.
#include "rendezvous/state/etcd/rows.hpp"
#include "rendezvous/state/sqlite_place.hpp"
#include "rendezvous/state/state_file.hpp"
#include "tests/support/expect.hpp"
#include "tests/support/state_text.hpp"
#include "tests/support/temporary_folder.hpp"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace dlaunch;
using namespace dlaunch::rendezvous;
using dlaunch::testing::is_full;
using dlaunch::testing::shown;

namespace {

/// Changes as a service makes them: what is popped was pushed, and what is used was opened.
class Life {
 public:
  explicit Life(unsigned seed) : random_(seed) {}

  std::vector<Change> batch() {
    std::vector<Change> changes;
    if (below(3) == 0) changes.emplace_back(change::Drained{"", drain()});
    if (!jobs_.empty()) changes.emplace_back(change::Drained{*jobs_.begin(), drain()});
    if (opened_ == dropped_) changes.emplace_back(opened());
    for (auto left = below(40); left > 0; --left) changes.push_back(next());
    return changes;
  }

 private:
  std::optional<std::string> drain() {
    if (below(2) == 0) return std::nullopt;
    return "drained " + std::to_string(below(100));
  }
  std::uint64_t below(std::uint64_t limit) { return random_() % limit; }
  std::string word() { return "w" + std::to_string(below(4)); }
  Bytes bytes() {
    const std::uint64_t size = below(20) == 0 ? below(700'000) : below(10);
    return Bytes(size, static_cast<std::byte>('a' + below(26)));
  }
  Change opened() {
    ++opened_;
    return change::SpaceOpened{opened_, word(), 1, static_cast<std::uint64_t>(opened_)};
  }
  Change next() {
    const change::Space space = dropped_ + 1;
    const std::string queue = word();
    long& waiting = queues_[queue];
    switch (below(12)) {
      case 0: {
        const std::string job = word();
        jobs_.insert(job);
        return change::JobOpened{job, below(100)};
      }
      case 1:
        return change::EpochClosed{word(), below(100)};
      case 2:
        return change::JobFinished{word(), static_cast<int>(below(9)) - 4};
      case 3:
        return opened();
      case 4:
        return change::Stored{space, word(), bytes(), below(3),
                              std::chrono::milliseconds(below(100))};
      case 5:
        return change::Erased{space, word()};
      case 6:
      case 7:
        ++waiting;
        return change::Pushed{space, queue, bytes()};
      case 8:
        if (waiting == 0) return change::Forgot{space, below(3)};
        --waiting;
        return change::Popped{space, queue};
      case 9:
        return change::Completed{space,
                                 below(2) == 0,
                                 word(),
                                 below(9),
                                 below(2) == 0 ? nullptr : std::make_shared<const Bytes>(bytes()),
                                 word()};
      case 10: {
        const std::uint64_t session = below(3);
        return change::Answered{space, session, answers_[session]++, below(100), {}, bytes()};
      }
      default:
        if (opened_ == space || below(20) != 0) {
          const std::string job = word();
          jobs_.erase(job);
          return change::JobForgotten{job};
        }
        queues_.clear();
        answers_.clear();
        return change::SpaceDropped{++dropped_};
    }
  }

  std::minstd_rand random_;
  change::Space opened_ = 0, dropped_ = 0;
  std::set<std::string> jobs_;  ///< That were opened, and not forgotten.
  std::map<std::string, long> queues_;
  std::map<std::uint64_t, std::uint64_t> answers_;
};

using Kept = std::map<std::string, std::string>;

void carry_out(const etcd::Batch& batch, Kept& kept) {
  for (const auto& operations : batch.transactions()) {
    for (const auto& [kind, key, value] : operations) {
      if (kind == etcd::Operation::Kind::put) {
        kept[key] = value;
      } else {
        const bool all = kind == etcd::Operation::Kind::erase_all;
        std::erase_if(kept, [&](const auto& one) {
          return all ? one.first.starts_with(key) : one.first == key;
        });
      }
    }
  }
}

}  // namespace

TEST_CASE("a state file and rows of etcd hold the same after the same changes") {
  for (unsigned seed = 1; seed <= (is_full() ? 200U : 10U); ++seed) {
    CAPTURE(seed);
    const testing::TemporaryFolder folder;
    StateFile file = StateFile::open((folder.path() / "state.db").string());
    auto rows = std::make_unique<etcd::Rows>("a test");
    Kept kept;
    etcd::Batch begin;
    rows->begin(file.load().memory, begin);
    carry_out(begin, kept);
    Life life(seed);
    for (int i = 0; i < 20; ++i) {
      const auto changes = life.batch();
      REQUIRE(file.write(changes) == StateFile::Wrote::all);
      etcd::Batch batch;
      for (const auto& each : changes) rows->apply(each, batch);
      carry_out(batch, kept);
      // Now and then another one goes on.
      if (i % 5 != 4) continue;
      rows = std::make_unique<etcd::Rows>("a test");
      for (const auto& [key, value] : kept) rows->found(key, value);
      REQUIRE(shown(rows->contents()) == shown(file.load()));
    }
  }
}

TEST_CASE("what belongs to a state file lies beside it, also where a link leads to it") {
  const testing::TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  std::filesystem::create_directory(path("disk"));
  std::filesystem::create_symlink("disk/second", path("first"));
  std::filesystem::create_symlink("state.db", path("disk/second"));
  // The file is made where the links lead, and found there again.
  for (const char* name : {"one", "two"}) {
    SqlitePlace place(StateFile::open(path("first")));
    REQUIRE(place.write({{change::JobOpened{"a", 1}}}) == StatePlace::Wrote::all);
    CHECK(place.back_up(name)->path() == path("disk/state.db-backups/") + name + ".db");
  }
  CHECK(std::filesystem::exists(path("disk/state.db-reserve")));
  std::set<std::string> beside;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    beside.insert(entry.path().filename().string());
  }
  CHECK(beside == std::set<std::string>{"disk", "first"});
}
