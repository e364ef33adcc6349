#pragma once

#include "collectives/transport/links.hpp"
#include "runtime/base/os/unique_fd.hpp"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>

namespace dlaunch::transport {

/// Moves started messages while no thread is in a call. It has a thread from the first message on
/// that was not complete at once. As long as there are such messages the thread looks from time to
/// time whether anybody calls, which costs callers nothing; otherwise it sleeps.
class ProgressThread {
 public:
  /// `mesh` outlives it.
  explicit ProgressThread(Links& mesh) : mesh_(mesh) {}
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;
  ~ProgressThread();

  // ---- With the mesh's lock held. ----

  /// A message was posted that nobody may wait for. Throws std::system_error when there can be no
  /// thread.
  void attend() {
    failed_ = false;
    if (!is_awake_) [[unlikely]]
      wake();
  }
  /// attend() does next to nothing, and does not throw.
  bool is_awake() const noexcept { return is_awake_; }
  /// Whether moving messages failed and nobody has tried again since: a call that waits for one
  /// will see why.
  bool has_failed() const noexcept { return failed_; }

 private:
  void wake();
  void run(const std::stop_token& stop);
  void look(const std::stop_token& stop);

  Links& mesh_;
  bool failed_ = false;
  bool is_awake_ = false;  ///< It looks from time to time.
  unique_fd ended_;        ///< Ends its waiting for descriptors.

  std::mutex mutex_;
  std::condition_variable_any woken_;
  bool is_woken_ = false;
  std::jthread thread_;
};

}  // namespace dlaunch::transport
