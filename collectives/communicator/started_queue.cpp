#include "collectives/communicator/started_queue.hpp"

#include "runtime/base/os/relax.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch {
namespace {

/// Beyond this, starting waits for the first ones.
constexpr std::size_t unfinished_max = 16384;
/// A call that is about to end is not worth a sleep, which takes longer.
constexpr auto spin_time = std::chrono::microseconds(20);

/// True as soon as it holds, false when it does not within spin_time.
template <class Holds>
bool spin(const Holds& holds) {
  const auto until = Clock::now() + spin_time;
  do {
    for (int i = 0; i < 32; ++i) {
      if (holds()) return true;
      relax();
    }
  } while (Clock::now() < until);
  return false;
}

/// What it throws has nowhere to go.
void call(const Work::Completion& completion, const std::exception_ptr& error) noexcept {
  completion(error);
}

/// Calls them, and those that come meanwhile, with the lock released; this thread is then one of
/// `tellers`.
void tell_all(std::unique_lock<std::mutex>& lock, std::vector<Work::Completion>& completions,
              const std::exception_ptr& error, std::vector<std::thread::id>& tellers) {
  const auto me = std::this_thread::get_id();
  while (!completions.empty()) {
    auto now = std::exchange(completions, {});
    tellers.push_back(me);
    lock.unlock();
    for (const auto& completion : now) call(completion, error);
    now.clear();
    lock.lock();
    tellers.erase(std::find(tellers.begin(), tellers.end(), me));
  }
}

}  // namespace

std::shared_ptr<StartedQueue::Item> StartedQueue::start(std::function<void()> body) {
  auto item = std::make_shared<Item>();
  item->body_ = std::move(body);
  while (unfinished_ >= unfinished_max) {
    wait([&] { return unfinished_ < unfinished_max; });
  }
  const Lock lock(mutex_);
  if (!thread_.joinable()) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
    used_ = true;
  }
  ++unfinished_;
  items_.push_back(item);
  if (idle_) runnable_.notify_one();
  return item;
}

void StartedQueue::finish(const Item& last) {
  if (!last.is_finished()) wait([&] { return last.is_finished(); });
}

bool StartedQueue::finish_by(const Item& last, Clock::time_point until) {
  const auto is_finished = [&] { return last.is_finished(); };
  if (is_finished()) return true;
  if (Clock::now() < until && spin(is_finished)) return true;
  Lock lock(mutex_);
  check_thread();
  ++waiting_;
  changed_.wait_until(lock, until, is_finished);
  --waiting_;
  return is_finished();
}

void StartedQueue::on_finish(Item& item, Work::Completion completion) {
  Lock lock(mutex_);
  item.completions_.push_back(std::move(completion));
  if (item.is_finished()) tell_all(lock, item.completions_, item.error_, tellers_);
}

void StartedQueue::finish_all() {
  if (unfinished_ == 0 || runner_ == std::this_thread::get_id()) return;
  wait([&] { return unfinished_ == 0; });
}

/// Runs what is queued as long as nobody else does; the queue's thread may not even be awake.
template <class Finished>
void StartedQueue::wait(const Finished& finished) {
  Lock lock(mutex_);
  check_thread();
  while (!finished()) {
    if (!running_ && !items_.empty()) {
      run_front(lock);
      continue;
    }
    lock.unlock();
    const bool soon = spin(finished);
    lock.lock();
    if (soon || finished() || (!running_ && !items_.empty())) continue;
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
  if (!running_ && !items_.empty() && idle_) runnable_.notify_one();
}

void StartedQueue::run_front(Lock& lock) {
  running_ = true;
  const auto item = std::move(items_.front());
  items_.pop_front();
  runner_ = std::this_thread::get_id();
  lock.unlock();
  std::exception_ptr error;
  try {
    item->body_();
  } catch (...) {
    error = std::current_exception();
  }
  item->body_ = nullptr;
  runner_ = std::thread::id();
  lock.lock();
  settle(lock, *item, error && ended_ ? ended_ : error);
  running_ = false;
}

/// Finished is what nobody has to be told of any more.
void StartedQueue::settle(Lock& lock, Item& item, std::exception_ptr error) {
  item.error_ = std::move(error);
  tell_all(lock, item.completions_, item.error_, tellers_);
  item.finished_.store(true, std::memory_order_release);
  --unfinished_;
  if (waiting_ > 0) changed_.notify_all();
}

/// A completion is part of its call, for which whoever waits here would wait.
void StartedQueue::check_thread() const {
  if (std::find(tellers_.begin(), tellers_.end(), std::this_thread::get_id()) == tellers_.end())
    return;
  throw Error(Errc::misuse,
              "a completion (Work::on_complete) cannot wait for started calls of its communicator; "
              "start calls there, or leave the waiting to another thread");
}

void StartedQueue::run(const std::stop_token& stop) {
  Lock lock(mutex_);
  for (;;) {
    idle_ = true;
    runnable_.wait(lock, stop, [&] { return !running_ && !items_.empty(); });
    idle_ = false;
    if (stop.stop_requested()) return;
    run_front(lock);
  }
}

void StartedQueue::end(const Error& why, const std::function<void()>& fail) {
  if (!thread_.joinable()) return;
  {
    Lock lock(mutex_);
    ended_ = std::make_exception_ptr(why);
    for (const auto& item : std::exchange(items_, {})) {
      item->body_ = nullptr;
      settle(lock, *item, ended_);
    }
  }
  fail();
  thread_.request_stop();
  thread_.join();
}

}  // namespace dlaunch
