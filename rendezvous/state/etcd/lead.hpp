#pragma once

#include "rendezvous/state/etcd/gateway.hpp"

#include <dlaunch/error.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace dlaunch::rendezvous::etcd {

/// How long a leader that has gone silent is waited for.
constexpr std::chrono::seconds lease_time{5};
/// A request beside the lease takes no longer, so that the lease does not end over a slow member.
constexpr std::chrono::seconds write_time{2};

/// The lead of one process among several: a key that its lease keeps in etcd. One thread, save for
/// is_ours(). Calls that ask etcd throw Failure.
class Lead {
 public:
  Lead(Gateway& gateway, std::string key) : gateway_(gateway), key_(std::move(key)) {}

  /// The identity of the one who leads; empty where that is this process, or nobody.
  std::string other();
  bool is_won() const { return term_ != 0; }
  /// Whether this process leads now. `identity` is what others are told of it.
  bool try_to_win(const std::string& identity);

  /// Renews the lease where that is due. False: it has ended.
  bool keep_if_due();
  Clock::time_point due() const { return due_; }
  /// After a renewal that failed.
  void try_again_soon();
  /// Nobody has to wait until the lease has ended.
  void give_up();

  const std::string& key() const { return key_; }
  /// The revision that made the key: no other leader has it, so each transaction has to find it.
  std::int64_t term() const { return term_; }

  /// Whether nobody else can have begun to lead: the lease as seen from here, where it began when
  /// it was asked for. Any thread, at any time.
  bool is_ours() const { return left() > Clock::duration::zero(); }
  /// How long that will be so, unless it is renewed; zero: it is not so.
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
