#include "runtime/base/deadline.hpp"
#include "runtime/world/local_store.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include <doctest/doctest.h>

using namespace dlaunch;

namespace {

/// A membership that knows of fixed losses.
class Losses final : public Membership {
 public:
  explicit Losses(std::vector<PeerLoss> known) : known_(std::move(known)) {}
  int fd() const override { return -1; }
  std::vector<PeerLoss> losses() override { return known_; }
  void report(const Error&, const Claim&) noexcept override {}
  std::shared_ptr<Segment> segment() override { return nullptr; }
  void inquire(const std::vector<int>&) noexcept override {}
  std::optional<std::map<int, SeenDoing>> doing() const override { return std::nullopt; }
  unique_fd take_listener() override { return {}; }
  std::optional<Key> data_key() const override { return std::nullopt; }
  void drain_output(Clock::time_point) override {}

 private:
  std::vector<PeerLoss> known_;
};

/// `size` ranks as threads over one store, `per_node` on each node.
void run_ranks(int size, int per_node, const std::function<void(const World&)>& program) {
  const auto store = std::make_shared<LocalStore>();
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    WorldInfo info;
    info.rank = rank;
    info.size = size;
    info.local_rank = rank % per_node;
    info.local_size = per_node;
    info.node_rank = rank / per_node;
    info.node_count = size / per_node;
    ranks.emplace_back([&program, world = World(info, store)] { program(world); });
  }
}

std::string failure(const auto& act, Errc code) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("rank 0 is first, then all others, and all leave together") {
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> done = 0;
  run_ranks(4, 4, [&](const World& world) {
    for (int turn = 0; turn < 5; ++turn) {
      rank_zero_first(world, [&] {
        const std::lock_guard lock(mutex);
        order.push_back(world.rank());
        ++done;
      });
      CHECK(done >= 4 * (turn + 1));
    }
  });
  REQUIRE(order.size() == 20);
  for (std::size_t turn = 0; turn < 5; ++turn) CHECK(order[turn * 4] == 0);
}

TEST_CASE("locally, each node has a first one of its own") {
  std::mutex mutex;
  std::vector<std::vector<int>> order(2);
  run_ranks(4, 2, [&](const World& world) {
    rank_zero_first(
        world,
        [&] {
          const std::lock_guard lock(mutex);
          order[static_cast<std::size_t>(world.info().node_rank)].push_back(world.rank());
        },
        true);
  });
  CHECK(order[0] == std::vector<int>{0, 1});
  CHECK(order[1] == std::vector<int>{2, 3});
}

TEST_CASE("the first one's exception reaches all others, who do not run the block") {
  std::atomic<int> ran = 0;
  run_ranks(3, 3, [&](const World& world) {
    const auto call = [&] {
      rank_zero_first(world, [&] {
        ++ran;
        throw std::runtime_error("disk full");
      });
    };
    if (world.rank() == 0) {
      CHECK_THROWS_AS(call(), std::runtime_error);
    } else {
      const std::string why = failure(call, Errc::aborted);
      CHECK(why.find("rank 0") != std::string::npos);
      CHECK(why.find("disk full") != std::string::npos);
    }
    // The world goes on.
    rank_zero_first(world, [] {});
  });
  CHECK(ran == 1);
}

TEST_CASE("a later one's exception reaches all others when all are done") {
  run_ranks(3, 3, [&](const World& world) {
    const auto call = [&] {
      rank_zero_first(world, [&] {
        if (world.rank() == 2) throw std::runtime_error("no license");
      });
    };
    if (world.rank() == 2) {
      CHECK_THROWS_AS(call(), std::runtime_error);
    } else {
      const std::string why = failure(call, Errc::aborted);
      CHECK(why.find("rank 2") != std::string::npos);
      CHECK(why.find("no license") != std::string::npos);
    }
  });
}

TEST_CASE("a first one that is lost is not waited for") {
  WorldInfo info;
  info.rank = 1;
  info.size = 2;
  const World world(info, std::make_shared<LocalStore>(),
                    std::make_shared<Losses>(std::vector{PeerLoss{0, "a", "killed by SIGKILL"}}));
  const std::string why = failure([&] { rank_zero_first(world, [] {}); }, Errc::peer_lost);
  CHECK(why.find("killed by SIGKILL") != std::string::npos);
}

TEST_CASE("a first one that never comes ends the wait at the timeout") {
  WorldInfo info;
  info.rank = 1;
  info.size = 2;
  const World world(info, std::make_shared<LocalStore>());
  failure(
      [&] {
        rank_zero_first(
            world, [] {}, false, std::chrono::milliseconds(30));
      },
      Errc::timeout);
}
