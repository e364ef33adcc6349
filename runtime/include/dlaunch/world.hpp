#pragma once

#include <dlaunch/store.hpp>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace dlaunch {

class Membership;  // The link to the agent, or to rank 0: runtime/world/member/membership.hpp.

/// This process among its peers. A plain value.
struct WorldInfo {
  int rank = 0;  ///< 0..size-1, over all nodes.
  int size = 1;
  int local_rank = 0;  ///< 0..local_size-1, on this node.
  int local_size = 1;
  int node_rank = 0;  ///< 0..node_count-1.
  int node_count = 1;
  std::uint64_t epoch = 0;  ///< Grows with every new rank map of the job; 0 without a launcher.
  int attempt = 0;          ///< How often the workers were restarted after a failure.
  std::string job;          ///< The job's id; empty without a launcher.
  std::string hostname;
  std::string master_addr;
  std::string master_port;
  std::string init_method;  ///< The URL really used.

  bool is_global_zero() const noexcept { return rank == 0; }
  bool operator==(const WorldInfo&) const = default;
};

/// How World::init behaves.
struct InitOptions {
  Clock::duration timeout = std::chrono::minutes(5);  ///< For all ranks to have arrived.
  /// For tcp:// and file://, where the URL does not say (-1: take RANK, WORLD_SIZE).
  int rank = -1;
  int world_size = -1;
  /// Rank 0 of a world without a launcher hosts the store: how long the destruction of its last
  /// World waits for the others to be done with it.
  Clock::duration linger = std::chrono::seconds(30);
};

class World;

/// Runs `block` on rank 0 first (with `local`: on local rank 0 of each node), then on all others;
/// all leave together. If the block fails on the first one, every other rank throws Error{aborted}
/// with its text, at once, instead of waiting; if it fails on another one, all the others do when
/// all are done. Every rank must call it, in the same order.
DLAUNCH_API void rank_zero_first(const World& world, const std::function<void()>& block,
                                 bool local = false,
                                 Clock::duration timeout = std::chrono::minutes(30));

/// A rank's place in the world and the store through which it meets the others. Nothing is global:
/// one process may hold several (tests run ranks as threads). Safe to read from any thread. A
/// value: copies share the store and the link to the agent, and are made on any thread.
class DLAUNCH_API World {
 public:
  /// Joins the world `url` names and returns when all ranks have arrived:
  ///   dlaunch://        a worker of our launcher
  ///   env://            what the environment says: our launcher's, else the four variables
  ///                     MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, and rank 0 hosts the store
  ///   tcp://host:port?rank=R&world_size=N    the same, spelled out
  ///   file://path?rank=R&world_size=N        a file that all ranks see; rank 0 writes where it
  ///                                          listens, and removes it when all have come
  /// A world of one rank, other than a launcher's, needs no address and opens no socket. A process
  /// joins a launcher's world once, and makes all its communicators of that World: a second init()
  /// would wait for nobody, and meet what is left of the first.
  ///
  /// Destroying the last copy of the World tells the others that this rank left in order; ending
  /// without that, or while an exception unwinds, is a loss to them. A forked child may not use its
  /// parent's World (Error{misuse}).
  ///
  /// Error{misuse} names the missing or wrong variable; Error{refused}: a duplicate rank or a
  /// disagreement on the size; Error{unreachable}; Error{timeout} lists who did not come and who
  /// did.
  [[nodiscard]] static World init(std::string_view url = "env://", const InitOptions& options = {});
  /// env:// if the environment has a rank, from our launcher, by hand, from mpirun or srun; else a
  /// world of one.
  [[nodiscard]] static World from_env(const InitOptions& options = {});
  /// Made by hand: for tests, and for those who bring a store of their own.
  World(WorldInfo info, std::shared_ptr<Store> store,
        std::shared_ptr<Membership> membership = nullptr);

  const WorldInfo& info() const noexcept { return *info_; }
  const std::shared_ptr<Store>& store() const noexcept { return store_; }
  const std::shared_ptr<Membership>& membership() const noexcept { return membership_; }

  int rank() const noexcept { return info_->rank; }
  int size() const noexcept { return info_->size; }

 private:
  friend void rank_zero_first(const World&, const std::function<void()>&, bool, Clock::duration);

  std::shared_ptr<const WorldInfo> info_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<std::atomic<std::uint64_t>> turns_;  ///< Calls of rank_zero_first so far.
};

}  // namespace dlaunch
