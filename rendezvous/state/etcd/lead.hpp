#pragma once

#include "rendezvous/state/etcd/gateway.hpp"

#include <dlaunch/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace dlaunch::rendezvous::etcd {

/// How long a silent leader is waited for.
constexpr std::chrono::seconds lease_time{5};
/// The limit of other requests, so that the lease does not end while a slow member is waited for.
constexpr std::chrono::seconds write_time{2};

/// The lead of one process among several: a key that its lease keeps in etcd. One thread, save for
/// is_ours(). Calls that ask etcd throw Failure.
class Lead {
 public:
  Lead(Gateway& gateway, std::string key) : gateway_(gateway), key_(std::move(key)) {}

  /// The identity of the leader; empty if that is this process, or nobody.
  std::string other();
  bool is_won() const { return term_ != 0; }
  /// Tries to lead; whether this process leads now. `identity` is its name for others.
  bool try_to_win(const std::string& identity);

  /// Renews the lease where that is due. False: it has ended.
  bool keep_if_due();
  Clock::time_point due() const { return due_; }
  /// Sets the time of the next renewal after one has failed.
  void try_again_soon();
  /// Gives up the lead, so that nobody has to wait until the lease has ended.
  void give_up();

  const std::string& key() const { return key_; }
  /// The revision that made the key. No other leader has it, so it is a condition of each
  /// transaction.
  std::int64_t term() const { return term_; }

  /// Whether nobody else can have begun to lead, by our own view of the lease, which began when it
  /// was asked for. Any thread, at any time.
  bool is_ours() const { return left() > Clock::duration::zero(); }
  /// How long that will hold without a renewal; zero: it does not.
  Clock::duration left() const;
  void doubt() { ours_until_ms_ = 0; }

 private:
  void keep_until(std::int64_t asked_ms, std::int64_t seconds);

  Gateway& gateway_;
  const std::string key_;
  std::int64_t lease_ = 0;
  std::int64_t term_ = 0;
  Clock::time_point due_ = Clock::time_point::max();
  std::atomic<std::int64_t> ours_until_ms_ = 0;  ///< By the clock that runs on while suspended.
};

}  // namespace dlaunch::rendezvous::etcd
