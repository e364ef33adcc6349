#pragma once

#include <atomic>
#include <cstdint>

namespace dlaunch {

/// The process in which an object was made. A child that was forked without exec has a copy of the
/// object, but its threads, its locks, its connections and the memory it shares are the parent's:
/// there it lets go of them, and does nothing else. Looking costs a load; no system call.
class HomeProcess {
 public:
  HomeProcess() noexcept : made_at_(forks_.load(std::memory_order_relaxed)) {}
  bool is_here() const noexcept { return made_at_ == forks_.load(std::memory_order_relaxed); }

 private:
  /// How many forks lie between this process and the one that loaded the library. A number of the
  /// process alone, like its pid, but unlike a pid never given to a descendant again.
  static std::atomic<std::uint32_t> forks_;
  static const int counted_;

  std::uint32_t made_at_;
};

}  // namespace dlaunch
