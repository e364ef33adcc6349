#include "collectives/nccl/reaper.hpp"

#include <system_error>
#include <thread>

namespace dlaunch::nccl {

bool Reaper::Task::wait_for(std::chrono::steady_clock::duration limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [this] { return done_; });
}

void Reaper::Task::run() noexcept {
  try {
    std::exchange(work_, nullptr)();
  } catch (...) {
    // Whatever the failure, such as a lack of memory: nobody waits for the result.
  }
  const std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

std::shared_ptr<Reaper::Task> Reaper::run(std::function<void()> work) {
  auto task = std::make_shared<Task>(std::move(work));
  {
    const std::lock_guard lock(mutex_);
    if (threads_ == threads_max) {
      waiting_.push_back(task);
      return task;
    }
    ++threads_;
  }
  try {
    std::thread([this, task] { run_all(task); }).detach();
  } catch (const std::system_error&) {
    run_all(task);
  }
  return task;
}

void Reaper::run_all(std::shared_ptr<Task> task) noexcept {
  for (;;) {
    task->run();
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      --threads_;
      return;
    }
    task = std::move(waiting_.front());
    waiting_.pop_front();
  }
}

}  // namespace dlaunch::nccl
