#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <algorithm>

namespace dlaunch::rendezvous {

/// The numbers of a job's epochs, here and in earlier incarnations. They only grow.
class EpochNumbers {
 public:
  explicit EpochNumbers(std::uint64_t last_epoch = 0, Incarnation own = {})
      : own_(own),
        incarnation_(own.number),
        last_epoch_(last_epoch),
        epoch_(last_epoch),
        highest_seen_(std::max(last_epoch, own.epoch_given)) {}

  std::uint64_t epoch() const { return epoch_; }
  std::uint64_t incarnation() const { return incarnation_; }

  /// Notes that a node has had this number.
  void see(std::uint64_t epoch) { highest_seen_ = std::max(highest_seen_, epoch); }
  /// The next epoch, of our own incarnation, has a number that no node has had.
  void begin_next() {
    incarnation_ = own_.number;
    epoch_ = highest_seen_ = std::max(epoch_, highest_seen_) + 1;
  }
  /// Takes up an epoch that began before this rendezvous did.
  void take_up(std::uint64_t epoch) { epoch_ = epoch; }
  /// The nodes of an earlier incarnation have come back. Numbers that were given out here in the
  /// meantime are not given again: some of its nodes may have had one.
  void return_to(std::uint64_t incarnation) {
    incarnation_ = taken_up_ = incarnation;
    epoch_ = last_epoch_;
  }

  /// The node is of another incarnation, which may not be over: it may have begun at an earlier
  /// rendezvous. Of two such incarnations the later counts.
  bool may_return(const Holding& held) const {
    return !ended_here(held.incarnation) && held.epoch >= last_epoch_ &&
           held.incarnation > taken_up_;
  }
  bool has_had(std::uint64_t incarnation) const {
    return incarnation == incarnation_ || incarnation <= taken_up_ || ended_here(incarnation);
  }
  Clock::time_point return_by() const { return own_.return_by; }

 private:
  bool ended_here(std::uint64_t incarnation) const {
    return incarnation >= own_.first_here && incarnation < own_.number;
  }

  Incarnation own_;
  std::uint64_t incarnation_ = 0;  ///< The epoch's.
  std::uint64_t taken_up_ = 0;     ///< The last incarnation whose nodes have come back; 0: none.
  std::uint64_t last_epoch_ = 0;   ///< The last of earlier incarnations, as far as is known.
  std::uint64_t epoch_ = 0;
  std::uint64_t highest_seen_ = 0;  ///< The highest number that any node ever had.
};

}  // namespace dlaunch::rendezvous
