#pragma once

#include "rendezvous/rounds/epoch.hpp"

#include <cstddef>
#include <vector>

namespace dlaunch::rendezvous {

/// What is left to do for the nodes of a round that has closed: each is seated in the new epoch,
/// and then each is told of its place. For thousands that takes long, so it is done node by node.
class Seating {
 public:
  /// The nodes by rank, which have to stay until it is done.
  explicit Seating(std::vector<const Node*> nodes);

  /// The new epoch, in which nobody is seated yet. `common` is what all its admissions have in
  /// common, but for what follows from the nodes.
  Epoch begin(Admission common);
  /// Seats the next node; false where all are seated.
  bool seat_next(Epoch& epoch);
  /// The next node to tell of its place, once all are seated; null where all have been told.
  const Node* next_to_tell() { return told_ < nodes_.size() ? nodes_[told_++] : nullptr; }
  std::size_t count() const { return nodes_.size(); }

 private:
  std::vector<const Node*> nodes_;
  std::vector<Housemates> housemates_;
  std::vector<Admission::Entry> roster_;
  Holding next_;  ///< The place of the next one to be seated.
  std::size_t seated_ = 0, told_ = 0;
};

}  // namespace dlaunch::rendezvous
