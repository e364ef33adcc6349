#include "rendezvous/rounds/comeback.hpp"

#include <iterator>

namespace dlaunch::rendezvous {

Comeback Comeback::of_nodes(int count, Clock::time_point until) {
  Comeback all;
  for (int rank = 0; rank < count; ++rank) all.awaited.insert(all.awaited.end(), rank);
  all.until = until;
  return all;
}

bool Comeback::has_room(int node_rank, int first_rank, int workers) const {
  const auto next = places.upper_bound(node_rank);
  if (next != places.end() && first_rank + workers > next->second.first_rank) return false;
  if (next == places.begin()) return true;
  const Place& previous = std::prev(next)->second;
  return previous.first_rank + previous.workers <= first_rank;
}

std::vector<std::pair<int, int>> Comeback::gaps(int world_size) const {
  std::vector<std::pair<int, int>> gaps;
  int next = 0;
  const auto gap_until = [&](int rank) {
    if (rank > next) gaps.emplace_back(next, rank - next);
  };
  for (const auto& [node_rank, place] : places) {
    gap_until(place.first_rank);
    next = place.first_rank + place.workers;
  }
  gap_until(world_size);
  return gaps;
}

}  // namespace dlaunch::rendezvous
