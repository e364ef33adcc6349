#pragma once

namespace dlaunch {

/// The thread on which a started call runs. If it belongs to a program that only looks whether the
/// call is complete, the call has it only until it would have to wait. For the call itself, where
/// it waits, without a lock.
class LentThread {
 public:
  virtual ~LentThread() = default;
  /// Whether the thread is to be given back instead of waiting. Needs no lock.
  virtual bool is_wanted() const noexcept = 0;
  /// Gives the thread back; returns when the call has a thread again, perhaps another one.
  virtual void give_back() noexcept = 0;
  /// The call has failed, and keeps the thread it has: an exception that is being handled is the
  /// thread's own.
  virtual void keep() noexcept = 0;
};

}  // namespace dlaunch
