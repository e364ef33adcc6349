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

/// A copy of the whole state, made in steps; changes between two steps are in it, too. If it is
/// destroyed before it is complete, it leaves nothing that could be taken for a copy.
class Backup {
 public:
  virtual ~Backup() = default;

  /// Copies for some milliseconds. True once the copy is complete, safe and at its path. Throws
  /// Error.
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
  /// Makes the changes, all or none of them, and returns when they are safe. After not_now the
  /// caller tries the same changes again. Throws StateLost if it is uncertain whether they were
  /// made, or if we may not make them any more.
  virtual Wrote write(std::span<const Change> changes) = 0;
  /// Does upkeep while nothing is written, and returns when to call again at the latest. Throws as
  /// write().
  virtual Clock::time_point tend() = 0;

  /// Why no more changes should come for now; `over` is the sentence for when they may again.
  /// Empty: they may.
  struct Obstacle {
    std::string why, over;
    bool lasts = false;  ///< Somebody has to do something first.
  };
  /// To be read after each call of write() and tend().
  virtual Obstacle obstacle() const = 0;

  /// Begins a copy under this name (letters, digits, '-' and '_') in the place's folder of copies.
  /// Its steps may come between calls of write(); it must not outlive the place. Throws Error if it
  /// cannot be begun.
  virtual std::unique_ptr<Backup> back_up(const std::string& name) = 0;

  /// Whether surely no other process has begun to serve this state. While it is false, messages to
  /// clients wait. Any thread may ask, at any time.
  virtual bool is_ours() const = 0;
  /// The state of the lead; nullopt if no other process could have it. Any thread may ask, at any
  /// time.
  virtual std::optional<StateFigures::Lead> lead() const = 0;
};

}  // namespace dlaunch::rendezvous
