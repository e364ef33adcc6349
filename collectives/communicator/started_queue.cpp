#include "collectives/communicator/started_queue.hpp"

#include "runtime/base/os/relax.hpp"

#include <dlaunch/error.hpp>

#include <algorithm>
#include <utility>

#include <sched.h>

namespace dlaunch {
namespace {

/// The most unfinished calls; beyond this, starting waits for the first ones.
constexpr std::size_t unfinished_max = 16384;
/// How long to spin before sleeping, which takes longer than the end of many calls.
constexpr auto spin_time = std::chrono::microseconds(20);
/// The thread takes over a call that has stood still for such a pause. The pause grows for a
/// program that comes back within it each time.
constexpr auto pause_min = std::chrono::microseconds(100);
constexpr auto pause_max = std::chrono::microseconds(400);
/// So many looks within a pause count as a loop, in which the thread would only be in the way.
constexpr std::uint64_t looks_in_loop = 4;

/// An exception would have nowhere to go.
void call(const Work::Completion& completion, const std::exception_ptr& error) noexcept {
  completion(error);
}

}  // namespace

void StartedQueue::Item::renew() noexcept {
  next_ = nullptr;
  error_ = nullptr;
  finished_.store(false, std::memory_order_relaxed);
}

// ---- For the program's threads. ----

void StartedQueue::start(Item& item, transport::Links& mesh) {
  while (unfinished_ >= unfinished_max) {
    wait([&] { return unfinished_ < unfinished_max; });
  }
  Lock lock(mutex_);
  if (!thread_.joinable()) {
    mesh_ = &mesh;
    fiber_.emplace(
        [](void* queue) noexcept {
          auto& self = *static_cast<StartedQueue*>(queue);
          try {
            self.first_->run();
          } catch (...) {
            self.first_->error_ = std::current_exception();
          }
        },
        this);
    // Its own, since a completion that it calls may end everybody else's.
    thread_ =
        std::jthread([self = shared_from_this()](const std::stop_token& stop) { self->run(stop); });
  }
  ++unfinished_;
  (first_ == nullptr ? first_ : last_->next_) = &item;
  last_ = &item;
  if (first_ == &item) begin_short(lock);
  wake_thread();
}

/// Begins the front call, and those behind it if it ends at once, so that other ranks need not wait
/// for this rank's part until the program comes back.
void StartedQueue::begin_short(Lock& lock) {
  while (is_due() && first_->is_short() && first_->may_change_threads()) {
    if (!drive(lock, Manner::look)) return;
  }
}

void StartedQueue::finish(const Item& last) {
  if (!last.is_finished()) wait([&] { return last.is_finished(); });
}

bool StartedQueue::look(const Item& last) {
  if (last.is_finished()) return true;
  {
    Lock lock(mutex_);
    ++looks_;
    while (!last.is_finished() && !is_teller()) {
      if (driving_) {
        if (is_in_loop()) call_thread_back();
        break;
      }
      if (!first_->may_change_threads()) {
        hurried_ = true;
        runnable_.notify_one();
        break;
      }
      if (!drive(lock, Manner::look)) break;
    }
    wake_thread();
  }
  if (last.is_finished()) return true;
  yield();
  return last.is_finished();
}

bool StartedQueue::finish_by(const Item& last, Clock::time_point until) {
  {
    const Lock lock(mutex_);
    check_thread();
  }
  // Drives the queue itself for a moment; then the thread takes it, and this one sleeps.
  const auto look_until = std::min(until, Clock::now() + spin_time);
  while (!driving_ && !look(last) && Clock::now() < look_until) relax();
  if (last.is_finished() || Clock::now() >= until) return last.is_finished();
  Lock lock(mutex_);
  if (is_due()) {
    hurried_ = true;
    runnable_.notify_one();
  }
  ++waiting_;
  changed_.wait_until(lock, until, [&] { return last.is_finished(); });
  --waiting_;
  return last.is_finished();
}

/// If the program only looks now and then, the call is left to the thread, which may sleep in it.
bool StartedQueue::is_in_loop() noexcept {
  const auto now = Clock::now();
  if (now - loop_began_ > pause_min) {
    loop_began_ = now;
    loop_looks_ = 0;
  }
  return ++loop_looks_ >= looks_in_loop;
}

void StartedQueue::on_finish(Item& item, Work::Completion completion) {
  Lock lock(mutex_);
  item.completions_.push_back(std::move(completion));
  if (item.is_finished()) tell(lock, item);
}

LentThread* StartedQueue::finish_others() {
  if (runner_ == std::this_thread::get_id()) return on_fiber_ ? this : nullptr;
  wait([&] { return unfinished_ == 0; });
  return nullptr;
}

/// Runs queued calls while nobody else does; the queue's thread may not even be awake.
template <class Finished>
void StartedQueue::wait(const Finished& finished) {
  Lock lock(mutex_);
  check_thread();
  while (!finished()) {
    if (!driving_) {
      drive(lock, Manner::to_its_end);
      continue;
    }
    call_thread_back();
    lock.unlock();
    const auto until = Clock::now() + spin_time;
    do {
      relax();
      yield();
    } while (driving_ && Clock::now() < until);
    lock.lock();
    if (!driving_ || finished()) continue;
    ++waiting_;
    changed_.wait(lock);
    --waiting_;
  }
  // The program may see to another communicator's calls next.
  begin_short(lock);
  wake_thread();
}

/// A completion is part of its call, so waiting in it for the queue would wait for itself.
void StartedQueue::check_thread() const {
  if (!is_teller()) return;
  throw Error(Errc::misuse,
              "a completion of a started call cannot wait for started calls of its communicator; "
              "start calls there, or leave the waiting to another thread");
}

bool StartedQueue::is_teller() const {
  return std::find(tellers_.begin(), tellers_.end(), std::this_thread::get_id()) != tellers_.end();
}

/// The awaited rank, or this rank's own thread, may need this processor.
void StartedQueue::yield() const noexcept {
  if (driving_ || mesh_->is_crowded()) ::sched_yield();
}

// ---- For whichever thread drives. ----

/// Runs the front call; true when it is over.
bool StartedQueue::drive(Lock& lock, Manner manner) {
  driving_ = true;
  manner_ = manner;
  runner_ = driver_ = std::this_thread::get_id();
  lock.unlock();
  const bool is_over = run_front(manner);
  runner_ = std::thread::id();
  lock.lock();
  if (is_over) settle(lock);
  driver_ = std::thread::id();
  driving_ = false;
  if (waiting_ > 0) changed_.notify_all();
  return is_over;
}

/// A call that has begun on the queue's stack ends there.
bool StartedQueue::run_front(Manner manner) {
  const bool is_begun = fiber_->is_suspended();
  on_fiber_ = is_begun || (manner != Manner::to_its_end && first_->may_change_threads());
  if (on_fiber_) return fiber_->resume();
  try {
    first_->run();
  } catch (...) {
    first_->error_ = std::current_exception();
  }
  return true;
}

/// A call is finished once nobody has to be told of it any more; it may be destroyed then.
void StartedQueue::settle(Lock& lock) {
  Item& item = *first_;
  if (item.error_ && ended_) item.error_ = ended_;
  tell(lock, item);
  first_ = item.next_;
  ++finished_count_;
  item.finished_.store(true, std::memory_order_release);
  --unfinished_;
  mesh_->tell_program();
}

/// Calls its completions, and those that come meanwhile, with the lock released; this thread is
/// then one of `tellers_`.
void StartedQueue::tell(Lock& lock, Item& item) {
  const auto me = std::this_thread::get_id();
  while (!item.completions_.empty()) {
    auto now = std::exchange(item.completions_, {});
    tellers_.push_back(me);
    ++telling_;
    lock.unlock();
    for (const auto& completion : now) call(completion, item.error_);
    now.clear();
    lock.lock();
    tellers_.erase(std::find(tellers_.begin(), tellers_.end(), me));
    --telling_;
  }
}

bool StartedQueue::is_wanted() const noexcept {
  return manner_ == Manner::look || (manner_ == Manner::meanwhile && called_back_);
}

void StartedQueue::give_back() noexcept { fiber_->suspend(); }

void StartedQueue::keep() noexcept { manner_ = Manner::to_its_end; }

// ---- The queue's own thread. ----

void StartedQueue::run(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (!stop.stop_requested()) {
    asleep_ = true;
    runnable_.wait(lock, stop, [this] { return is_due(); });
    asleep_ = false;
    const bool takes_over = is_left_alone(lock, stop);
    hurried_ = false;
    called_back_ = false;
    if (!takes_over) continue;
    while (is_due() && !called_back_ && !stop.stop_requested()) drive(lock, Manner::meanwhile);
  }
}

/// Waits for work; false when there is none, or the program does it. The program gets a moment to
/// come for the call it has started, since a call that ends at once is not worth a switch of
/// threads.
bool StartedQueue::is_left_alone(Lock& lock, const std::stop_token& stop) {
  for (auto pause = pause_min;; pause = std::min(pause * 2, pause_max)) {
    const Item* const front = first_;
    const auto finished = finished_count_;
    const auto looks = looks_;
    const bool hurried = runnable_.wait_for(lock, stop, pause, [this] { return hurried_; });
    if (stop.stop_requested()) return false;
    const bool is_same = front == first_ && finished == finished_count_;
    const bool stood_still = is_same && looks_ - looks < looks_in_loop;
    if (hurried || (stood_still && front != nullptr)) return is_due();
    if (is_same && front == nullptr) return false;
  }
}

void StartedQueue::wake_thread() noexcept {
  if (asleep_ && is_due()) runnable_.notify_one();
}

/// The driver's call waits, or will: it is given up there.
void StartedQueue::call_thread_back() noexcept {
  if (!called_back_.exchange(true)) mesh_->wake();
}

// ---- The end. ----

void StartedQueue::end(const Error& why, const std::shared_ptr<transport::Links>& mesh,
                       const std::function<void()>& fail) {
  if (!thread_.joinable()) return;
  const auto me = std::this_thread::get_id();
  bool is_told = false;  // The front call is over, and this is within one of its completions.
  {
    Lock lock(mutex_);
    is_told = driver_ == me;
    if (is_told) kept_mesh_ = mesh;
    ended_ = std::make_exception_ptr(why);
    const bool has_begun = driving_ || fiber_->is_suspended();
    Item* item = has_begun ? std::exchange(first_->next_, nullptr) : std::exchange(first_, nullptr);
    last_ = first_;
    while (item != nullptr) {
      Item* const next = item->next_;
      item->error_ = ended_;
      tell(lock, *item);
      item->finished_.store(true, std::memory_order_release);
      --unfinished_;
      item = next;
    }
    if (waiting_ > 0) changed_.notify_all();
  }
  fail();
  thread_.request_stop();
  if (thread_.get_id() == me) {
    thread_.detach();
  } else {
    thread_.join();
  }
  if (is_told) return;
  Lock lock(mutex_);
  while (first_ != nullptr) drive(lock, Manner::to_its_end);
}

}  // namespace dlaunch
