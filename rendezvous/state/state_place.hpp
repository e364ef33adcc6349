#pragma once

#include "rendezvous/state/changes.hpp"
#include "rendezvous/state/state_contents.hpp"

#include <dlaunch/error.hpp>

#include <cstddef>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

/// A place that keeps jobs and keys over a restart. Opened and read on one thread, and from then on
/// the writer's alone, save where a call says otherwise.
class StatePlace {
 public:
  virtual ~StatePlace() = default;

  /// Reads and checks everything; asked for once, first. Throws Error (Errc::refused) where it is
  /// damaged.
  virtual StateContents load() = 0;

  /// So many changes are written at once without more ado. More are taken, too.
  virtual std::size_t changes_at_once() const = 0;
  enum class Wrote { all, not_now };
  /// Makes the changes, all or none of them, and returns when they are safe. After not_now the same
  /// changes come again. Throws StateLost where it cannot be said whether they were made, or where
  /// they may not be made any more.
  virtual Wrote write(std::span<const Change> changes) = 0;
  /// Does what is due while nothing is written, and returns when to call again at the latest.
  /// Throws as write().
  virtual Clock::time_point tend() = 0;

  /// Why no more changes shall come for now; `over` is said when they may. Empty: they may.
  struct Obstacle {
    std::string why, over;
  };
  /// To be asked for after each call of write() and tend().
  virtual Obstacle obstacle() const = 0;

  /// Whether nobody else may have begun to serve what is kept here. Any thread may ask, at any
  /// time: what is said to clients waits while it is false.
  virtual bool is_ours() const = 0;
};

}  // namespace dlaunch::rendezvous
