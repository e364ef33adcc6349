#pragma once

#include "collectives/algorithms/select.hpp"

#include <dlaunch/communicator.hpp>

#include <memory>

namespace dlaunch {

/// What rank 0's DLAUNCH_TABLE has, else the table in the tree. Throws Error{misuse} with where and
/// why if that cannot be read: the same on all ranks.
std::shared_ptr<const algorithms::Table> table_of(const World& world);

/// By which table a communicator goes; for those who measure it.
class TableInUse {
 public:
  static const algorithms::Table& of(const Communicator& communicator);
  /// On all ranks, between the same two calls. Groups that were split from it go by it, too.
  static void replace(Communicator& communicator, std::shared_ptr<const algorithms::Table> table);
};

}  // namespace dlaunch
