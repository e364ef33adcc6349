#pragma once

#include <atomic>
#include <cstdint>

namespace dlaunch {

/// The process in which an object was made. A child that was forked without exec has a copy of the
/// object, but its threads, its locks, its connections and the memory it shares are the parent's:
/// there it lets go of them, and does nothing else. A check costs two loads and no system call. A
/// child that has its parent's memory (vfork(2)) counts as its parent.
class HomeProcess {
 public:
  HomeProcess() noexcept : made_in_(number()) {}
  bool is_here() const noexcept { return made_in_ == current().load(std::memory_order_relaxed); }

 private:
  using Number = std::atomic<std::uint32_t>;

  static Number& current() noexcept { return *current_; }
  static std::uint32_t number() noexcept {
    const std::uint32_t known = current().load(std::memory_order_relaxed);
    return known != 0 ? known : new_number();
  }
  static std::uint32_t new_number() noexcept;
  static bool place_current() noexcept;

  /// The last number that this process or one of its ancestors has had. A process' number is never
  /// given to a descendant of it, unlike a pid.
  static Number last_;
  /// This process's number; 0 as long as nothing was made in it. It lies in memory that is zeroed
  /// in every child, however it was made, where the kernel offers that.
  static Number ordinary_;
  static Number* current_;
  static const bool is_placed_;

  std::uint32_t made_in_;
};

}  // namespace dlaunch
