#pragma once

#include "collectives/algorithms/select/select.hpp"

#include <dlaunch/communicator.hpp>

#include <memory>

namespace dlaunch {

/// The table in rank 0's DLAUNCH_TABLE, else the one in the tree. Throws Error{misuse} with where
/// and why if that cannot be read: the same on all ranks.
std::shared_ptr<const algorithms::Table> table_of(const World& world);

/// The table that a communicator goes by; for programs that measure it.
class TableInUse {
 public:
  static const algorithms::Table& of(const Communicator& communicator);
  /// Replaces the table. To be called on all ranks, between the same two calls. Groups that were
  /// split from the communicator use it, too.
  static void replace(Communicator& communicator, std::shared_ptr<const algorithms::Table> table);
};

}  // namespace dlaunch
