#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <map>
#include <set>
#include <utility>

namespace dlaunch::rendezvous {

/// The nodes of an epoch that began before this rendezvous did, as they come back to it. Empty for
/// an epoch that began here.
struct Comeback {
  struct Place {
    Session session = 0;
    int first_rank = 0;
    int workers = 0;
  };
  std::map<int, Place> places;  ///< The nodes that are back, by node rank.
  std::set<int> awaited;        ///< Node ranks that are not back yet.
  std::optional<Clock::time_point> until;

  static Comeback of_nodes(int count, Clock::time_point until);
  /// Whether no node that is back has one of these ranks.
  bool has_room(int node_rank, int first_rank, int workers) const;
  /// The ranks of which no node has come back: the first of each range, and how many.
  std::vector<std::pair<int, int>> gaps(int world_size) const;
};

}  // namespace dlaunch::rendezvous
