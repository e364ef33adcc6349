#include "collectives/transport/progress_lock.hpp"

#include <utility>

namespace dlaunch::transport {
namespace {

/// After the last caller has left, before the progress thread takes over: a program in a loop of
/// short calls is back by then.
constexpr auto progress_thread_pause = std::chrono::microseconds(200);

}  // namespace

bool ProgressLock::take(Clock::time_point deadline) {
  if (!polling_) {
    polling_ = true;
    return true;
  }
  std::unique_lock held(mutex_, std::adopt_lock);
  ++sleeping_;
  changed_.wait_until(held, deadline);
  --sleeping_;
  held.release();  // The caller's.
  return false;
}

bool ProgressLock::take_when_quiet(const std::stop_token& stop,
                                   const std::function<bool()>& wanted) {
  std::unique_lock held(mutex_, std::adopt_lock);
  while (!stop.stop_requested()) {
    progress_thread_waits_ = true;
    quiet_.wait(held, stop, [&] { return is_quiet() && wanted(); });
    progress_thread_waits_ = false;
    if (!std::exchange(called_lately_, false)) break;
    quiet_.wait_for(held, stop, progress_thread_pause, [] { return false; });
  }
  held.release();  // The caller's.
  if (stop.stop_requested()) return false;
  return polling_ = attended_ = true;
}

void ProgressLock::finish() noexcept {
  polling_ = attended_ = false;
  tell();
  if (is_quiet()) tell_progress_thread();
}

bool ProgressLock::tell() noexcept {
  if (sleeping_ > 0) changed_.notify_all();
  return polling_;
}

void ProgressLock::leave() noexcept {
  --callers_;
  called_lately_ = true;
  if (is_quiet()) tell_progress_thread();
}

void ProgressLock::want() noexcept {
  called_lately_ = true;
  if (is_quiet()) tell_progress_thread();
}

void ProgressLock::tell_progress_thread() noexcept {
  if (progress_thread_waits_) quiet_.notify_all();
}

}  // namespace dlaunch::transport
