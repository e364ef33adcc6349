#pragma once

namespace dlaunch {

/// The thread on which a started call runs. It may belong to a program that only looks whether the
/// call is complete, and then the call has it for as long as it need not wait. For the call itself,
/// where it waits, without a lock.
class LentThread {
 public:
  virtual ~LentThread() = default;
  /// It is to be given back instead of waiting. Free.
  virtual bool is_wanted() const noexcept = 0;
  /// Returns when the call has a thread again, which may be another one.
  virtual void give_back() noexcept = 0;
  /// The call has failed, and keeps the thread it has: an exception that is being handled is the
  /// thread's own.
  virtual void keep() noexcept = 0;
};

}  // namespace dlaunch
