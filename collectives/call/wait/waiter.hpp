#pragma once

#include "collectives/call/wait/call_frame.hpp"
#include "collectives/call/wait/losses.hpp"
#include "collectives/call/wait/strays.hpp"
#include "collectives/call/wait/waiting.hpp"

#include <optional>

namespace dlaunch {

/// The waiting of one call: moves messages until what is waited for is there, and sees what ends
/// the call before. Says so by a typed reason; it makes no sentence.
class Waiter {
 public:
  explicit Waiter(const CallFrame& frame);

  /// nullopt: it is there; or it is in memory, and the thread is wanted back. `look_interval`:
  /// nobody tells of it. Under the mesh's lock, as a caller of its progress.
  std::optional<Ending> wait(const Waiting& waiting, const Ready& ready,
                             Clock::duration look_interval);

 private:
  void give_thread_back() const;
  void tell_call(const Waiting& waiting) const;
  ending::TimedOut timed_out(const Waiting& waiting) const;

  const CallFrame& frame_;
  const Clock::time_point deadline_;
  LossWatch losses_;
  StrayWatch strays_;
};

}  // namespace dlaunch
