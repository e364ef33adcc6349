#pragma once

#include "rendezvous/succession/quorum.hpp"

#include <dlaunch/error.hpp>

#include <set>
#include <string>
#include <utility>

namespace dlaunch::rendezvous {

/// The epoch of a lost host, whose nodes come to the node that hosts the job in its place.
struct LastEpoch {
  std::uint64_t incarnation = 0;
  std::uint64_t number = 0;
  int nodes = 0;

  bool operator==(const LastEpoch&) const = default;
};

/// Counts those that have come, and tells whether a first round may close without the others. Pure.
/// Not thread-safe.
class Muster {
 public:
  using Session = Quorum::Session;
  enum class Step {
    wait,
    close,    ///< As far as this is concerned, a round may close.
    give_up,  ///< Too few have come.
  };

  Muster(LastEpoch last, Clock::time_point until) : last_(last), until_(until) {}

  const LastEpoch& last() const { return last_; }
  Clock::time_point until() const { return until_; }
  /// A node of the epoch is here; its workers may still be at work.
  void came(Session session) { at_work_.insert(session), here_.insert(session); }
  /// None of its workers is left. False: it is not one of these.
  bool ended(Session session) {
    at_work_.erase(session);
    return here_.contains(session);
  }
  void gone(Session session) { at_work_.erase(session), here_.erase(session); }
  bool is_here(Session session) const { return here_.contains(session); }
  /// We slept: the time to come is longer.
  void forgive(Clock::duration slept) { until_ += slept; }

  /// All but the lost host are waited for, for a time; then more than half of the epoch's nodes
  /// have to do, and as many nodes as the job needs. No round closes beside workers of before.
  Step step(const Quorum& quorum, int nodes_here, int nodes_min, Clock::time_point now) const;
  /// "2 of the 4 nodes of epoch 3 have come".
  std::string text(const Quorum& quorum) const;

 private:
  LastEpoch last_;
  Clock::time_point until_;
  std::set<Session> here_, at_work_;
};

}  // namespace dlaunch::rendezvous
