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

/// Threads for what takes NCCL as long as it likes: to end a communicator it waits until every
/// graph is gone that has calls of it. Nobody else waits for longer than he wants to. The threads
/// are nobody's, so a process that ends does not wait for them either; hence a Reaper lives as long
/// as the process. For any number of threads.
class Reaper {
 public:
  /// At once; what comes beyond waits for its turn.
  static constexpr std::size_t threads_max = 64;

  class Task {
   public:
    explicit Task(std::function<void()> work) : work_(std::move(work)) {}
    /// Whether it is done within that time.
    bool wait_for(std::chrono::steady_clock::duration limit);

   private:
    friend class Reaper;
    void run() noexcept;

    std::function<void()> work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool done_ = false;
  };

  /// `work` does not throw. If there cannot be a thread, it is done here and now.
  std::shared_ptr<Task> run(std::function<void()> work);

 private:
  void run_all(std::shared_ptr<Task> first) noexcept;

  std::mutex mutex_;
  std::size_t threads_ = 0;
  std::deque<std::shared_ptr<Task>> waiting_;
};

}  // namespace dlaunch::nccl
