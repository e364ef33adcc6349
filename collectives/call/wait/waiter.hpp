#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/losses.hpp"
#include "collectives/call/wait/strays.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

namespace dlaunch {

/// The waiting of one call: moves messages until the wait is satisfied, and notices what ends the
/// call earlier. It returns a typed reason and makes no sentences.
class Waiter {
 public:
  explicit Waiter(const CallFrame& frame);

  /// nullopt: the wait is satisfied; or it is a wait in memory, and the thread is wanted back.
  /// `look_interval` is for changes of which nobody tells. Under the mesh's lock, as a caller of
  /// its progress.
  std::optional<Ending> wait(const Waiting& waiting, const Ready& ready,
                             Clock::duration look_interval);

 private:
  void look_past(const Waiting& waiting) const;
  void give_thread_back() const;
  void tell_call(const Waiting& waiting) const;
  ending::TimedOut timed_out(const Waiting& waiting) const;

  const CallFrame& frame_;
  const Clock::time_point deadline_;
  LossWatch losses_;
  StrayWatch strays_;
};

}  // namespace dlaunch
