#include "collectives/transport/biased_mutex.hpp"

#include "runtime/base/os/relax.hpp"
#include "runtime/base/os/thread_pointer.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace dlaunch::transport {
namespace {

using namespace std::chrono_literals;

/// Looks before a thread that waits for the owner lets others run.
constexpr int looks_max = 64;
constexpr std::chrono::microseconds pause_min = 20us, pause_max = 1000us;

}  // namespace

void BiasedMutex::lock_by_mutex() {
  if (!mutex_.try_lock()) {
    waiting_.fetch_add(1, std::memory_order_relaxed);
    mutex_.lock();
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  const Bias* const bias = bias_.load(std::memory_order_relaxed);
  if (bias != nullptr && bias->is_anothers()) end_anothers();
  note_locked();
}

void BiasedMutex::end_anothers() {
  Bias& bias = *bias_.load(std::memory_order_relaxed);
  bias.stop();
  bias_.store(nullptr, std::memory_order_relaxed);
  waiting_.fetch_add(1, std::memory_order_relaxed);
  // Its owner is inside for moments only, but may have to wait for a processor.
  auto pause = pause_min;
  for (int looks = 0; bias.is_inside(); ++looks) {
    if (looks < looks_max) {
      relax();
    } else {
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, pause_max);
    }
  }
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

/// Begins a bias where this thread has been alone for long enough.
void BiasedMutex::note_locked() {
  if (!is_allowed_ || begun_ == biases_max) return;
  if (bias_.load(std::memory_order_relaxed) != nullptr) return;
  const std::uintptr_t self = thread_pointer();
  if (std::exchange(last_, self) != self) streak_ = 0;
  if (++streak_ < streak_min << begun_) return;
  streak_ = 0;
  Bias& next = biases_[begun_++];
  next.give();
  bias_.store(&next, std::memory_order_release);
}

bool BiasedMutex::try_lock_by_mutex() {
  if (!mutex_.try_lock()) return false;
  Bias* const bias = bias_.load(std::memory_order_relaxed);
  if (bias == nullptr || !bias->is_anothers()) return true;
  // The first look saves a barrier that would be for nothing.
  if (!bias->is_inside()) {
    bias->stop();
    if (!bias->is_inside()) {
      suspended_ = bias;
      return true;
    }
    bias->go_on();
  }
  mutex_.unlock();
  return false;
}

void BiasedMutex::unlock_mutex() noexcept {
  if (suspended_ != nullptr) std::exchange(suspended_, nullptr)->go_on();
  mutex_.unlock();
}

}  // namespace dlaunch::transport
