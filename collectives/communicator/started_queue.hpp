#pragma once

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace dlaunch {

/// The started collectives of one communicator. They run one at a time, in the order of starting,
/// on a thread of the queue's own, which lives from the first one to end(); or on a thread that
/// waits for them, where that comes first. For any number of threads, unless it says otherwise.
class StartedQueue {
 public:
  /// One started collective.
  class Item {
   public:
    bool is_finished() const noexcept { return finished_.load(std::memory_order_acquire); }
    /// What it threw; once finished.
    const std::exception_ptr& error() const noexcept { return error_; }

   private:
    friend class StartedQueue;
    std::function<void()> body_;
    std::vector<Work::Completion> completions_;
    std::exception_ptr error_;
    std::atomic<bool> finished_{false};
  };

  StartedQueue() = default;
  StartedQueue(const StartedQueue&) = delete;
  StartedQueue& operator=(const StartedQueue&) = delete;
  /// After end(), or when nothing was ever started.
  ~StartedQueue() = default;

  /// Waits for the first ones when very many are not finished. Throws std::system_error when there
  /// can be no thread.
  std::shared_ptr<Item> start(std::function<void()> body);
  /// Until this one is finished, and all before it; runs what nobody runs.
  void finish(const Item& last);
  /// True once this one is finished, false if it is not by `until`. Runs nothing, which might take
  /// longer than that.
  bool finish_by(const Item& last, Clock::time_point until);
  /// Called when it is over, or at once if it is finished; see Work::on_complete.
  void on_finish(Item& item, Work::Completion completion);
  /// Until all are finished. Returns at once in a body that is running, which is a call itself.
  void finish_all();
  /// Those not yet running end with `why`, and the running one, too, if it fails after `fail`,
  /// which is called to make it; then the thread is gone. For the thread that starts.
  void end(const Error& why, const std::function<void()>& fail);
  /// Something was started.
  bool is_used() const noexcept { return used_; }

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run(const std::stop_token& stop);
  void run_front(Lock& lock);
  void settle(Lock& lock, Item& item, std::exception_ptr error);
  template <class Finished>
  void wait(const Finished& finished);
  void check_thread() const;

  std::mutex mutex_;
  std::condition_variable changed_;          ///< For those who wait.
  std::condition_variable_any runnable_;     ///< For the thread.
  std::deque<std::shared_ptr<Item>> items_;  ///< Not yet running.
  bool running_ = false;
  bool idle_ = false;  ///< The thread sleeps.
  int waiting_ = 0;
  std::vector<std::thread::id> tellers_;  ///< Threads that are in a completion.
  std::atomic<std::thread::id> runner_{};
  std::atomic<std::size_t> unfinished_{0};
  std::atomic<bool> used_{false};
  std::exception_ptr ended_;
  std::jthread thread_;
};

}  // namespace dlaunch
