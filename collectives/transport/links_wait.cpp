#include "collectives/transport/links.hpp"
#include "collectives/transport/message/spin_times.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/relax.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>

/// The waiting of a rank at its links: it looks, spins, and sleeps until a descriptor is ready.
namespace dlaunch::transport {
namespace {

/// How often losses are checked: another thread may have read the news (any call on the store
/// does), and then no descriptor tells of it.
constexpr auto losses_interval = std::chrono::milliseconds(100);
/// How often shared memory is looked at if nobody can ring the bell.
constexpr auto no_bell_interval = std::chrono::milliseconds(1);
/// Sockets are looked at this often while memory keeps a rank busy; and while it spins, if there
/// are connections.
constexpr auto sockets_interval = std::chrono::microseconds(50);
constexpr auto sockets_slice = std::chrono::microseconds(5);
/// Receives that are posted between two looks for messages that have come for them.
constexpr std::size_t receives_a_look = 8;
/// Looks between two readings of the clock: about a microsecond.
constexpr int spins_between_looks = 16;

class NoLook final : public LookLimit {
 public:
  bool is_over() const override { return true; }
  bool allows_system_calls() const override { return false; }
};

/// The progress thread's turn, as long as it has it.
class ProgressTurn {
 public:
  explicit ProgressTurn(ProgressLock& progress_lock) : progress_lock_(progress_lock) {}
  ProgressTurn(const ProgressTurn&) = delete;
  ProgressTurn& operator=(const ProgressTurn&) = delete;
  ~ProgressTurn() {
    if (progress_lock_.is_attended()) progress_lock_.finish();
  }

 private:
  ProgressLock& progress_lock_;
};

}  // namespace

void Links::step(Clock::time_point deadline, bool spins) {
  if (progress_lock_.is_attended()) take_over();
  const auto now = Clock::now();
  const bool moved = progress(now);
  if (moved) tell_threads();
  if (!in_memory_.empty() && moved && now - sockets_looked_at_ < sockets_interval) return;
  if (!progress_lock_.take(moved ? now : deadline)) return;
  const Turn turn(progress_lock_);
  wait_in_turn(deadline, now, moved, spins);
}

/// Makes progress once. Sockets and the membership's news cost system calls, so they are looked at
/// less often.
void Links::look() {
  if (progress_lock_.is_attended()) take_over();
  const auto now = Clock::now();
  if (progress(now)) tell_threads();
  const auto interval = in_memory_.empty()  ? Clock::duration::zero()
                        : has_connections() ? Clock::duration(sockets_slice)
                                            : Clock::duration(sockets_interval);
  if (now - sockets_looked_at_ < interval || progress_lock_.are_shared()) return;
  if (!progress_lock_.take(now)) return;
  const Turn turn(progress_lock_);
  if (membership_ && now - losses_read_ >= losses_interval) read_losses();
  poll(0);
}

/// Moves all that needs no descriptor to become ready.
bool Links::progress(Clock::time_point now) {
  bool moved = decide(now);
  std::erase_if(busy_, [](const SendQueue* queue) { return !queue->has_work(); });
  for (const auto& transport : transports_) moved = transport->progress() || moved;
  return tell_senders() || moved;
}

bool Links::look_into_memory() {
  bool moved = false;
  for (Transport* transport : in_memory_) moved = transport->progress() || moved;
  moved = tell_senders() || moved;
  if (moved) tell_program();
  return moved;
}

void Links::wait_in_turn(Clock::time_point deadline, Clock::time_point now, bool moved,
                         bool spins) {
  // What is awaited may come just now: then there is nothing to sleep for.
  if (membership_ && now - losses_read_ >= losses_interval) moved = read_losses() || moved;
  if (!moved && spins &&
      (in_memory_.empty() ? spin_on_sockets(now) : spin(now, next_wake(deadline)))) {
    return;
  }
  sleep(next_wake(deadline), moved);
}

/// Wakes the other threads: their messages may have come, or there is more to wait for.
void Links::tell_threads() noexcept {
  tell_program();
  if (progress_lock_.tell()) wake();
}

// ---- The progress thread. ----

bool Links::attend(const std::stop_token& stop, int wakes) {
  if (!progress_lock_.take_when_quiet()) return false;
  const ProgressTurn turn(progress_lock_);
  progress_wakeup_ = wakes;
  while (!stop.stop_requested() && has_pending()) {
    const auto now = Clock::now();
    if (membership_ && now - losses_read_ >= losses_interval) read_losses();
    const bool moved = progress(now);
    if (moved) tell_program();
    wait_aside(now, moved);
    if (!progress_lock_.is_attended()) break;
  }
  return true;
}

/// The progress thread's wait. It learns only that some descriptors are ready, so that a caller
/// that takes over meanwhile finds all news.
void Links::wait_aside(Clock::time_point now, bool moved) {
  int timeout_ms = moved ? 0 : poll_timeout_ms(next_wake(now + losses_interval), now);
  const bool sleeps = timeout_ms != 0;
  if (sleeps) {
    for (Transport* transport : in_memory_) transport->lie_down();
    if (look_into_memory()) timeout_ms = 0;
  }
  std::array<pollfd, 2> any{pollfd{poller_.fd(), POLLIN, 0}, pollfd{progress_wakeup_, POLLIN, 0}};
  progress_lock_.stepped_aside([&] {
    ::poll(any.data(), any.size(), timeout_ms);
    std::uint64_t count = 0;
    if (any[1].revents == 0) return;
    [[maybe_unused]] const auto got = ::read(any[1].fd, &count, sizeof count);
  });
  if (!progress_lock_.is_attended()) return;
  if (sleeps) {
    for (Transport* transport : in_memory_) transport->get_up();
  }
  const bool has_news = poller_.look();
  take_signals();
  if (has_news) tell_program();
}

/// Takes over from the progress thread without waiting for it.
void Links::take_over() noexcept {
  progress_lock_.take_over();
  for (Transport* transport : in_memory_) transport->get_up();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(progress_wakeup_, &one, sizeof one);
}

// ---- Awake. ----

/// Looks into memory, and at the sockets, until something has moved: true. Not for long, and not
/// if another thread wants the lock.
bool Links::spin(Clock::time_point now, Clock::time_point until) {
  Clock::duration limit = crowded_ ? Clock::duration(crowded_spin_time) : spin_time;
  if (!crowded_) {
    for (const Transport* transport : in_memory_) limit += transport->under_way();
  }
  until = std::min(until, now + limit);
  auto sockets_due = has_connections() ? now + sockets_slice : Clock::time_point::max();
  for (bool first = true; now < until && !progress_lock_.are_wanted();
       first = false, now = Clock::now()) {
    const bool yields = crowded_ && !first;
    for (int i = 0; i < (yields ? 1 : spins_between_looks); ++i) {
      yields ? static_cast<void>(::sched_yield()) : relax();
      if (look_into_memory()) return true;
    }
    if (now < sockets_due) continue;
    if (poll(0)) return true;
    sockets_due = now + sockets_slice;
  }
  return false;
}

/// The same if there are only sockets.
bool Links::spin_on_sockets(Clock::time_point now) {
  if (!has_connections()) return false;
  const auto until = now + spin_time;
  do {
    if (poll(0)) return true;
    if (crowded_) ::sched_yield();
  } while (!progress_lock_.are_wanted() && Clock::now() < until);
  return false;
}

bool Links::allows_system_calls() const {
  return !crowded_ && !progress_lock_.are_shared() && is_flushed();
}

/// Takes a message that is there as a whole in a ring; those who send much keep nobody else out.
bool Links::take_from_any(Receive& receive) {
  const auto count = ins_.size();
  for (std::size_t i = 0, which = next_in_; i < count; ++i, ++which) {
    if (which >= count) which = 0;
    const auto& in = ins_.begin()[static_cast<std::ptrdiff_t>(which)];
    if (!(*in.kept)->take_soon(receive, NoLook())) continue;
    inbox_.note_taken(in.rank, receive.header);
    next_in_ = which + 1;
    return true;
  }
  return false;
}

bool Links::receive_now(Receive& receive, bool yields) {
  if (progress_lock_.is_attended()) take_over();
  if (inbox_.take_parked(receive)) return true;
  return receive.from == any_source ? receive_from_any(receive, yields)
                                    : receive_from_one(receive, yields);
}

bool Links::receive_from_any(Receive& receive, bool yields) {
  if (!inbox_.is_clear() || !is_near(any_source)) return false;
  const int most = looks_most(yields);
  const auto is_quiet = [](const auto& in) { return (*in.kept)->is_quiet(); };
  const auto has_something = [](const auto& in) { return (*in.kept)->has_left_something(); };
  for (int looks = 0; looks < most && !is_over(); ++looks) {
    if (!std::all_of(ins_.begin(), ins_.end(), is_quiet)) {
      if (take_from_any(receive)) return true;
      // What has come, and is long, another's or synchronous, takes the long way.
      if (std::any_of(ins_.begin(), ins_.end(), has_something)) return false;
    }
    pause_after(looks);
  }
  return false;
}

bool Links::receive_from_one(Receive& receive, bool yields) {
  if (!inbox_.is_clear(receive.from)) return false;
  ReceivingEnd* end = in(receive.from);
  if (end == nullptr) return false;
  const bool is_taken =
      end->take_soon(receive, *this) || (yields && yield_until_taken(*end, receive));
  if (is_taken) inbox_.note_taken(receive.from, receive.header);
  return is_taken;
}

/// Yields this processor, which the awaited rank may need, until the message is taken.
bool Links::yield_until_taken(ReceivingEnd& end, Receive& receive) {
  if (!crowded_ || !is_near(receive.from) || !is_flushed()) return false;
  for (int yielded = 0; yielded < yields_max && !is_over(); ++yielded) {
    // What has come, and is not to be taken so, takes the long way.
    if (end.has_left_something() || end.ended()) return false;
    ::sched_yield();
    if (end.take_soon(receive, NoLook())) return true;
  }
  return false;
}

bool Links::may_be_there(const Receive& receive) {
  if (receive.from == any_source) return inbox_.is_clear() && is_near(any_source);
  ReceivingEnd* end = in(receive.from);
  return end != nullptr && !end->is_worth_looking() && serve_earlier(receive.from, *end) &&
         !end->is_quiet();
}

bool Links::receive_at_once(Receive& receive) {
  if (receive.from == any_source) return take_from_any(receive);
  if (!in(receive.from)->take_soon(receive, NoLook())) return false;
  inbox_.note_taken(receive.from, receive.header);
  return true;
}

/// Whether no receive was posted earlier, so that the next message may be for another one. Where
/// many were, those take first what has come for them: a receive that need not be posted costs less
/// than one that must. It looks once for several, since a look may take as long as they do.
bool Links::serve_earlier(int from, ReceivingEnd& end) {
  bool is_clear = inbox_.is_clear(from);
  if (is_clear) return true;
  if (progress_lock_.are_shared() || inbox_.awaited(from) % receives_a_look != 0) return false;
  bool moved = false;
  while (!is_clear && end.hand_on_whole(inbox_)) {
    moved = true;
    is_clear = inbox_.is_clear(from);
  }
  if (moved) tell_program();
  return is_clear;
}

bool Links::look_for(int from) {
  if (progress_lock_.is_attended()) take_over();
  ReceivingEnd* end = in(from);
  if (crowded_ || end == nullptr || !end->is_worth_looking() || progress_lock_.are_shared()) {
    return false;
  }
  // A way is looked for in step() only.
  if (is_undecided()) return false;
  const auto until = Clock::now() + spin_time;
  do {
    bool moved = end->pump(inbox_, on_control_);
    for (SendQueue* queue : busy_) moved = queue->pump() || moved;
    if (moved) tell_program();
    if (moved) return true;
  } while (!progress_lock_.are_wanted() && Clock::now() < until);
  return false;
}

// ---- Asleep. ----

/// Waits in epoll_wait(2), so that nothing is used while nothing happens.
void Links::sleep(Clock::time_point until, bool only_look) {
  int timeout_ms = only_look ? 0 : poll_timeout_ms(until);
  if (in_memory_.empty() || timeout_ms == 0) {
    poll(timeout_ms);
    return;
  }
  // From here on writers ring; data written before is seen below.
  for (Transport* transport : in_memory_) transport->lie_down();
  if (look_into_memory()) timeout_ms = 0;
  poll(timeout_ms);
  for (Transport* transport : in_memory_) transport->get_up();
  look_into_memory();
}

Clock::time_point Links::next_wake(Clock::time_point deadline) const {
  if (membership_) deadline = std::min(deadline, losses_read_ + losses_interval);
  if (bell_ && bell_->fd() < 0) deadline = std::min(deadline, Clock::now() + no_bell_interval);
  for (const auto& transport : transports_) deadline = std::min(deadline, transport->next_wake());
  return is_undecided() ? std::min(deadline, pauses_.next()) : deadline;
}

void Links::wake() noexcept {
  const std::uint64_t one = 1;
  // It fails only if the counter is full, and then the waiter wakes anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

int Links::descriptor() {
  if (!program_) {
    program_ = unique_fd(::eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!program_) throw Error(Errc::internal, "cannot make an eventfd: " + errno_text(errno));
    told_program_ = program_.get();
  }
  return program_.get();
}

void Links::write_to_program(int fd) noexcept {
  const std::uint64_t one = 1;
  // A counter that is full is readable.
  [[maybe_unused]] const auto written = ::write(fd, &one, sizeof one);
}

/// Whether messages have moved meanwhile.
bool Links::read_losses() {
  losses_read_ = Clock::now();
  losses_ = membership_->losses();
  if (losses_.size() != losses_heard_.size()) tell_program();
  losses_heard_.resize(losses_.size(), losses_read_);
  // By now everything that a rank wrote before its end is there.
  return look_into_memory();
}

/// Polls descriptors; whether any was ready. Data comes first: a peer's data must be seen before
/// the news of its end.
bool Links::poll(int timeout_ms) {
  const bool moved =
      poller_.wait(timeout_ms, [this](const auto& wait) { return progress_lock_.released(wait); });
  take_signals();
  const bool has_told = tell_senders();
  if (moved || has_told) tell_program();
  return moved || has_told;
}

void Links::take_signals() {
  if (woken_.take()) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
  }
  if (rung_.take()) bell_->clear();
  if (!in_memory_.empty()) sockets_looked_at_ = Clock::now();
  if (told_.take()) read_losses();
}

}  // namespace dlaunch::transport
