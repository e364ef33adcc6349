#pragma once

#include "rendezvous/service/job_journal.hpp"
#include "rendezvous/state/changes.hpp"
#include "rendezvous/state/state_contents.hpp"

#include <dlaunch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace dlaunch::rendezvous {

/// A copy of all that is kept, made some of it at a time. What is written between two steps is in
/// it, too. One that goes before it is whole leaves nothing that could be taken for a copy.
class Backup {
 public:
  virtual ~Backup() = default;

  /// Copies for some milliseconds. True once it is whole, safe and at its path. Throws Error.
  virtual bool step() = 0;
  virtual const std::string& path() const = 0;
  struct Size {
    std::uint64_t copied = 0, all = 0;  ///< In bytes.
  };
  virtual Size size() const = 0;
};

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

  /// Begins a copy under this name, of letters, digits, '-' and '_', where the place has its
  /// copies. It may be worked on between calls of write(), and does not outlive the place. Throws
  /// Error where there can be none.
  virtual std::unique_ptr<Backup> back_up(const std::string& name) = 0;

  /// Whether nobody else may have begun to serve what is kept here. Any thread may ask, at any
  /// time: what is said to clients waits while it is false.
  virtual bool is_ours() const = 0;
  /// What there is to say of the lead; nullopt where no other process could have it. Any thread may
  /// ask, at any time.
  virtual std::optional<StateFigures::Lead> lead() const = 0;
};

}  // namespace dlaunch::rendezvous
