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
    close,    ///< The muster does not keep a round from closing.
    give_up,  ///< Too few have come.
  };

  Muster(LastEpoch last, Clock::time_point until) : last_(last), until_(until) {}

  const LastEpoch& last() const { return last_; }
  Clock::time_point until() const { return until_; }
  /// Notes that a node of the epoch is here; its workers may still be at work.
  void came(Session session) { at_work_.insert(session), here_.insert(session); }
  /// Notes that none of its workers is left. False: the node is not one of these.
  bool ended(Session session) {
    at_work_.erase(session);
    return here_.contains(session);
  }
  void gone(Session session) { at_work_.erase(session), here_.erase(session); }
  bool is_here(Session session) const { return here_.contains(session); }
  /// We stood still: the nodes get more time to come.
  void forgive(Clock::duration slept) { until_ += slept; }

  /// For a time all nodes but the lost host are waited for; after that, more than half of the
  /// epoch's nodes, and as many as the job needs, are enough. No round closes while workers of the
  /// old epoch run.
  Step step(const Quorum& quorum, int nodes_here, int nodes_min, Clock::time_point now) const;
  /// "2 of the 4 nodes of epoch 3 have come".
  std::string text(const Quorum& quorum) const;

 private:
  LastEpoch last_;
  Clock::time_point until_;
  std::set<Session> here_, at_work_;
};

}  // namespace dlaunch::rendezvous
