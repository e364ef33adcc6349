#pragma once

#include "packaging/python-torch/extension/started.hpp"

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace dlaunch::torch_backend {

/// One thread at a time, in the order in which they came: a thread that waits in slices has others
/// go first between two of them, which a plain mutex does not promise.
class Turns {
 public:
  void lock() {
    std::unique_lock lock(mutex_);
    const std::uint64_t own = next_++;
    while (own != now_) changed_.wait(lock);
  }
  /// False, and nothing is taken, where another thread has it or waits for it.
  bool try_lock() {
    const std::lock_guard lock(mutex_);
    if (next_ != now_) return false;
    ++next_;
    return true;
  }
  void unlock() {
    {
      const std::lock_guard lock(mutex_);
      ++now_;
      if (now_ == next_) return;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  std::uint64_t now_ = 0;
};

/// A communicator that any thread of the program may use, as torch's process groups are used: the
/// library's are for one thread at a time.
class Group : public std::enable_shared_from_this<Group> {
 public:
  Group(std::shared_ptr<const World> world, Communicator communicator);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::shared_ptr<std::atomic<Failure>>& failure() const noexcept { return failure_; }

  using Begin = std::function<void(Communicator&, std::vector<Work>&)>;
  /// Starts what `begin` starts.
  void start(const std::shared_ptr<Started>& started, const Begin& begin);
  /// Waits until it is complete, or until then; whether it is.
  bool wait(Started& started, Clock::time_point until);
  /// Moves what can be moved at once; whether it is complete.
  bool test(Started& started);
  /// A receive that has waited for too long; false where its message comes, or it is a send.
  bool cancel(Started& started);
  /// Calls `then` on a thread of its own when it is complete.
  void when_complete(const std::shared_ptr<Started>& started, std::function<void()> then);

  /// What `call` does with the communicator, which is nobody else's meanwhile.
  template <class Call>
  auto with(Call&& call) {
    check_process();
    const std::lock_guard turn(turns_);
    return call(open());
  }

  /// From any thread, and waits for nobody. The others are told of the place.
  void abort(const CallSite& place);
  /// Waits for what was started, then lets the communicator go.
  void close();
  /// Before the process ends without a goodbye: the ranks that rank 0 serves hear of its end from
  /// itself, as no agent tells them. Nothing is done while another thread is in a call.
  void abandon();

  const std::shared_ptr<const World>& world() const noexcept { return world_; }

 private:
  bool is_forked() const noexcept { return ::getpid() != process_; }
  /// Refuses a forked child, before it takes a lock that its parent may have held.
  void check_process() const;
  using Dropped = std::vector<std::shared_ptr<Started>>;
  Communicator& open();
  void let_go_of_complete(Dropped& dropped);

  const pid_t process_ = ::getpid();
  std::shared_ptr<const World> world_;
  const std::shared_ptr<std::atomic<Failure>> failure_ =
      std::make_shared<std::atomic<Failure>>(Failure::none);
  Turns turns_;
  std::deque<std::shared_ptr<Started>> collectives_;  ///< In order: they end in it.
  Dropped messages_;
  std::mutex abort_mutex_;  ///< Guards the communicator's end against abort().
  std::optional<Communicator> communicator_;
};

}  // namespace dlaunch::torch_backend
