#include "collectives/transport/progress_thread.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>

#include <sys/eventfd.h>
#include <unistd.h>

namespace dlaunch::transport {
namespace {

using namespace std::chrono_literals;

/// The pause between two looks whether anybody calls; it grows while somebody does. Where ranks
/// share processors each look takes the time of a rank that computes, and most messages move in the
/// calls of the program soon enough.
constexpr Clock::duration pause_min = 200us;
constexpr Clock::duration pause_max = 1ms;
constexpr Clock::duration crowded_pause_max = 8ms;
/// The thread sleeps once so many looks in a row have found no message under way, so that a program
/// in a loop of messages need not wake it for each one.
constexpr int idle_looks_max = 100;
/// While somebody calls again and again, so many looks go by without the lock.
constexpr int busy_looks_max = 16;

}  // namespace

ProgressThread::~ProgressThread() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(ended_.get(), &one, sizeof one);
}

void ProgressThread::wake() {
  if (!thread_.joinable()) {
    // Without a descriptor the thread notices its end a little later.
    ended_ = unique_fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    mesh_.control().note_started();
  }
  is_awake_ = true;
  {
    const std::lock_guard held(mutex_);
    is_woken_ = true;
  }
  woken_.notify_one();
}

void ProgressThread::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock held(mutex_);
      woken_.wait(held, stop, [this] { return is_woken_; });
      is_woken_ = false;
    }
    look(stop);
  }
}

/// Looks until there is nothing to look for.
void ProgressThread::look(const std::stop_token& stop) {
  const Clock::duration longest = mesh_.is_crowded() ? crowded_pause_max : pause_max;
  Clock::duration pause = pause_min;
  int idle_looks = 0, busy_looks = 0;
  for (; !stop.stop_requested(); pause = std::min(2 * pause, longest)) {
    {
      std::unique_lock held(mutex_);
      woken_.wait_for(held, stop, pause, [] { return false; });
    }
    if (mesh_.progress_lock().was_called() && ++busy_looks < busy_looks_max) continue;
    busy_looks = 0;
    const auto lock = mesh_.try_lock();
    if (!lock) continue;  // Somebody calls.
    if (failed_ || !mesh_.has_pending()) {
      is_awake_ = ++idle_looks < idle_looks_max;
      if (!is_awake_) return;
      continue;
    }
    idle_looks = 0;
    try {
      if (mesh_.attend(stop, ended_.get())) pause = pause_min / 2;
    } catch (const std::exception&) {
      // The error is not lost: it comes again in the next call that waits, which can report it.
      failed_ = true;
    }
  }
}

}  // namespace dlaunch::transport
