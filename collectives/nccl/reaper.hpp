#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace dlaunch::nccl {

/// Threads for NCCL calls of unlimited length: to end a communicator NCCL waits until every graph
/// with calls of it is gone. Callers wait only as long as they want to. The threads are detached,
/// so the end of the process does not wait for them either; therefore a Reaper lives as long as the
/// process. For any number of threads.
class Reaper {
 public:
  /// The most threads at a time; further tasks wait for their turn.
  static constexpr std::size_t threads_max = 64;

  class Task {
   public:
    explicit Task(std::function<void()> work) : work_(std::move(work)) {}
    /// Waits; whether the task is done within that time.
    bool wait_for(std::chrono::steady_clock::duration limit);

   private:
    friend class Reaper;
    void run() noexcept;

    std::function<void()> work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
  };

  /// Starts `work`, which must not throw. If no thread can be made, it is done here and now.
  std::shared_ptr<Task> run(std::function<void()> work);

 private:
  void run_all(std::shared_ptr<Task> first) noexcept;

  std::mutex mutex_;
  std::size_t threads_ = 0;
  std::deque<std::shared_ptr<Task>> waiting_;
};

}  // namespace dlaunch::nccl
