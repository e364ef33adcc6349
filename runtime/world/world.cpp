#include "runtime/base/deadline.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/world.hpp>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>

namespace dlaunch {
namespace {

/// How often a rank that waits for the first one looks whether it still lives.
constexpr auto look_interval = std::chrono::milliseconds(100);

constexpr std::string_view done_mark = "done";
constexpr std::string_view failed_mark = "failed ";

/// One call of rank_zero_first: its ranks and their keys.
struct Turn {
  std::string name;
  int rank;
  int size;
  int first_world_rank;  ///< -1: not known, as for a node's first rank.
};

/// The text of the exception being handled.
std::string current_text() {
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception without a text";
  }
}

/// Waits for the first rank's word, and looks now and then whether it is still alive.
Bytes wait_for_first(const World& world, const Turn& turn, Clock::time_point deadline) {
  for (;;) {
    const auto slice = std::min(deadline, Clock::now() + look_interval);
    try {
      return world.store()->wait(turn.name, slice);
    } catch (const Error& error) {
      if (error.errc() != Errc::timeout) throw;
      if (Clock::now() >= deadline) {
        throw Error(Errc::timeout, "rank_zero_first: the first rank was not done in time");
      }
    }
    if (!world.membership()) continue;
    for (const PeerLoss& loss : world.membership()->losses()) {
      if (turn.first_world_rank >= 0 && loss.rank != turn.first_world_rank) continue;
      throw Error(Errc::peer_lost, "rank_zero_first: rank " + std::to_string(loss.rank) + " on " +
                                       loss.host + " is lost: " + loss.cause);
    }
  }
}

/// Runs the block; a failure is published under `key` before it goes on.
void run_and_tell(Store& store, const std::string& key, const std::function<void()>& block,
                  const std::string& who) {
  try {
    block();
  } catch (...) {
    store.set(key, as_bytes(std::string(failed_mark) + who + ": " + current_text()));
    throw;
  }
}

void throw_if_failed(BytesView word) {
  const std::string_view text = as_text(word);
  if (!text.starts_with(failed_mark)) return;
  throw Error(Errc::aborted, "rank_zero_first: " + std::string(text.substr(failed_mark.size())));
}

}  // namespace

World::World(WorldInfo info, std::shared_ptr<Store> store, std::shared_ptr<Membership> membership)
    : info_(std::make_shared<const WorldInfo>(std::move(info))),
      store_(std::move(store)),
      membership_(std::move(membership)),
      turns_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

void rank_zero_first(const World& world, const std::function<void()>& block, bool local,
                     Clock::duration timeout) {
  const WorldInfo& info = world.info();
  const auto deadline = deadline_after(timeout);
  const std::string number = std::to_string(world.turns_->fetch_add(1));
  const Turn turn =
      local ? Turn{"rank_zero_first/" + number + "/node" + std::to_string(info.node_rank),
                   info.local_rank, info.local_size, -1}
            : Turn{"rank_zero_first/" + number, info.rank, info.size, 0};
  Store& store = *world.store();
  const std::string who = "rank " + std::to_string(info.rank);
  const std::string late_failure = turn.name + "/failed";
  if (turn.rank == 0) {
    run_and_tell(store, turn.name, block, who);
    store.set(turn.name, as_bytes(done_mark));
  } else {
    throw_if_failed(wait_for_first(world, turn, deadline));
  }
  std::exception_ptr own;
  if (turn.rank != 0) {
    try {
      run_and_tell(store, late_failure, block, who);
    } catch (...) {
      own = std::current_exception();  // The others still wait for this rank below.
    }
  }
  barrier(store, turn.name + "/done", turn.rank, turn.size, deadline);
  if (own) std::rethrow_exception(own);
  if (const auto word = store.get(late_failure)) throw_if_failed(*word);
}

}  // namespace dlaunch
