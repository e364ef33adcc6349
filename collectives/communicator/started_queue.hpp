#pragma once

#include "collectives/call/wait/lent_thread.hpp"
#include "collectives/communicator/fiber.hpp"
#include "collectives/transport/links.hpp"

#include <dlaunch/work.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

namespace dlaunch {

/// The started collectives of one communicator. They run one at a time, in the order of starting,
/// on a stack of the queue's own. The thread that drives it may be one that waits for them, for a
/// moment one that looks at them, or, if the program does neither, the queue's own thread, which
/// lives from the first call to end(). So a call may begin on one thread and end on another; it
/// changes threads where it waits. For any number of threads, unless it says otherwise.
class StartedQueue final : public std::enable_shared_from_this<StartedQueue>, private LentThread {
 public:
  /// One started collective, in one queue at a time. Made by whoever starts it, and kept until it
  /// is finished.
  class Item {
   public:
    Item(const Item&) = delete;
    Item& operator=(const Item&) = delete;
    virtual ~Item() = default;

    bool is_finished() const noexcept { return finished_.load(std::memory_order_acquire); }
    /// Its exception, once it is finished.
    const std::exception_ptr& error() const noexcept { return error_; }

   protected:
    Item() = default;
    /// To be called once it is finished, before it is started again.
    void renew() noexcept;

   private:
    friend class StartedQueue;
    /// Runs the call, which gets its thread by finish_all().
    virtual void run() = 0;
    /// Whether it may change threads: it runs no code of the program's, which may need its thread's
    /// stack, and waits only in the way of calls.
    virtual bool may_change_threads() const noexcept = 0;
    /// Whether it pays to begin it where it is started.
    virtual bool is_short() const noexcept = 0;

    Item* next_ = nullptr;
    std::vector<Work::Completion> completions_;
    std::exception_ptr error_;
    std::atomic<bool> finished_{false};
  };

  StartedQueue() = default;
  StartedQueue(const StartedQueue&) = delete;
  StartedQueue& operator=(const StartedQueue&) = delete;
  /// Whether it is after end(), or nothing was ever started.
  ~StartedQueue() override = default;

  /// Waits for the first ones when very many are not finished. Throws std::system_error when there
  /// can be no thread, or no stack. The mesh is that of the queue's communicator, until end().
  void start(Item& item, transport::Links& mesh);
  /// Waits until this call and all before it are finished; runs calls that nobody else runs.
  void finish(const Item& last);
  /// Runs as much as is possible without waiting. True once this call is finished; if not, other
  /// ranks that share the processor have had it for a turn.
  bool look(const Item& last);
  /// Waits; true once this call is finished, false if it is not by `until`.
  bool finish_by(const Item& last, Clock::time_point until);
  /// Sets a completion, called when the call is over, or at once if it is finished; see
  /// Work::on_complete.
  void on_finish(Item& item, Work::Completion completion);
  /// Waits until all are finished. In a running body, which is a call of its own, it returns at
  /// once, with the lent thread if there is one. Throws Error{misuse} in a completion.
  LentThread* finish_all() {
    return unfinished_.load(std::memory_order_acquire) == 0 && telling_ == 0 ? nullptr
                                                                             : finish_others();
  }
  /// Ends calls that are not running with `why`. The running one is made to fail by `fail`, and
  /// then ends with `why`, too. Then the thread is gone. For the thread that starts. In a
  /// completion of the call that was running that one stays as it is, and ends, as the thread does,
  /// after the completion has returned; `mesh` then lives as long as the queue.
  void end(const Error& why, const std::shared_ptr<transport::Links>& mesh,
           const std::function<void()>& fail);

 private:
  using Lock = std::unique_lock<std::mutex>;
  /// How long a thread drives the front call.
  enum class Manner : std::uint8_t {
    look,        ///< Until it would wait.
    to_its_end,  ///< However long that takes.
    meanwhile,   ///< Until a thread of the program's comes.
  };

  bool is_wanted() const noexcept override;
  void give_back() noexcept override;
  void keep() noexcept override;

  void run(const std::stop_token& stop);
  bool is_left_alone(Lock& lock, const std::stop_token& stop);
  bool is_due() const noexcept { return first_ != nullptr && !driving_; }
  void wake_thread() noexcept;
  void call_thread_back() noexcept;
  bool is_teller() const;
  bool is_in_loop() noexcept;
  void check_thread() const;
  LentThread* finish_others();
  template <class Finished>
  void wait(const Finished& finished);
  void begin_short(Lock& lock);
  bool drive(Lock& lock, Manner manner);
  bool run_front(Manner manner);
  void settle(Lock& lock);
  void tell(Lock& lock, Item& item);
  void yield() const noexcept;

  std::mutex mutex_;
  std::condition_variable changed_;       ///< For those who wait.
  std::condition_variable_any runnable_;  ///< For the thread.
  transport::Links* mesh_ = nullptr;
  Item* first_ = nullptr;  ///< The first unfinished call.
  Item* last_ = nullptr;
  std::optional<Fiber> fiber_;        ///< The stack; from the first one on.
  std::atomic<bool> driving_{false};  ///< Whether some thread runs the front call, or tells of it.
  std::thread::id driver_;            ///< That thread.
  Manner manner_ = Manner::look;      ///< That thread's manner.
  bool on_fiber_ = false;
  int waiting_ = 0;
  std::vector<std::thread::id> tellers_;  ///< Threads that are in a completion.
  std::atomic<std::thread::id> runner_{};
  std::atomic<std::size_t> unfinished_{0};
  std::atomic<std::size_t> telling_{0};  ///< The size of `tellers_`, for a look without the lock.
  std::exception_ptr ended_;
  std::shared_ptr<transport::Links> kept_mesh_;  ///< Null unless a completion has called end().

  bool asleep_ = false;                   ///< The thread waits to be told of something.
  bool hurried_ = false;                  ///< It is to begin at once.
  std::atomic<bool> called_back_{false};  ///< It is to give up what it drives.
  std::uint64_t finished_count_ = 0;
  std::uint64_t looks_ = 0;  ///< How often the program came to see to the front one.
  Clock::time_point loop_began_{};
  std::uint64_t loop_looks_ = 0;  ///< Looks since then, at what the thread drives.
  std::jthread thread_;
};

}  // namespace dlaunch
