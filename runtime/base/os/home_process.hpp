#pragma once

#include "runtime/base/os/unique_fd.hpp"

#include <atomic>
#include <cstdint>
#include <utility>

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

/// Owns a descriptor that a child which is forked without exec does not keep: else a connection
/// would outlive the process that speaks on it for as long as the child lives, and its peer would
/// not hear of that process's end. The child closes it as its first act, and nothing later; one
/// that is made without fork(3) keeps it to its end.
class home_fd {
 public:
  home_fd() noexcept = default;
  home_fd(unique_fd fd) noexcept : fd_(fd.release()) {  // NOLINT: it is one, and more.
    if (fd_ >= 0) add(fd_);
  }
  home_fd(home_fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), home_(other.home_) {}
  home_fd& operator=(home_fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
      home_ = other.home_;
    }
    return *this;
  }
  ~home_fd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  /// Empty in a child, where it is closed.
  unique_fd release() noexcept {
    const int fd = std::exchange(fd_, -1);
    return unique_fd(fd >= 0 && remove(fd, home_) ? fd : -1);
  }
  void reset() noexcept { release(); }

 private:
  static void add(int fd) noexcept;
  /// Whether it is still open here.
  static bool remove(int fd, const HomeProcess& home) noexcept;

  int fd_ = -1;
  HomeProcess home_;
};

}  // namespace dlaunch
