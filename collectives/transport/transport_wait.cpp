#include "collectives/transport/message/spin_times.hpp"
#include "collectives/transport/transport.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/relax.hpp"
#include "runtime/base/os/socket.hpp"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <sched.h>

/// How a rank waits for what comes by its links: it looks, spins, and sleeps in poll(2).
namespace dlaunch::transport {
namespace {

/// News of losses may have been read by another thread (any call on the store reads them),
/// and then no descriptor tells of it.
constexpr auto losses_interval = std::chrono::milliseconds(100);
/// Nobody can ring: shared memory is looked at again so often.
constexpr auto no_bell_interval = std::chrono::milliseconds(1);
/// Sockets are looked at this often while the rings keep a rank busy; and while it spins, if there
/// are connections.
constexpr auto sockets_interval = std::chrono::microseconds(50);
constexpr auto sockets_slice = std::chrono::microseconds(5);
/// Between two looks at the clock: about a microsecond.
constexpr int spins_between_looks = 16;
/// Before a receive goes the long way.
constexpr int spins_before_step = 512;

}  // namespace

void Transport::step(Clock::time_point deadline, bool spins) {
  const auto now = Clock::now();
  const bool moved = move_pending(now);
  if (moved) tell_threads();
  if (progress_lock_.is_attended()) wake();
  if (rings_ && moved && now - sockets_looked_at_ < sockets_interval) return;
  if (!progress_lock_.take(moved ? now : deadline)) return;
  const Turn turn(progress_lock_);
  wait_in_turn(deadline, now, moved, spins);
}

void Transport::step_in_turn() {
  const Turn turn(progress_lock_);
  const auto now = Clock::now();
  wait_in_turn(Clock::time_point::max(), now, move_pending(now), false);
}

/// Moves all that needs no descriptor to become ready.
bool Transport::move_pending(Clock::time_point now) {
  const bool moved = pump_unpolled();
  return look_up_pending(now) || moved;
}

void Transport::wait_in_turn(Clock::time_point deadline, Clock::time_point now, bool moved,
                             bool spins) {
  if (membership_ && now - losses_read_ >= losses_interval) read_losses();
  if (!moved && spins && (rings_ ? spin(now, next_wake(deadline)) : spin_on_sockets(now))) return;
  sleep(next_wake(deadline), moved);
  drop_slow_newcomers();
}

/// Wakes the other threads: their messages may have come, or there is more to poll for.
void Transport::tell_threads() noexcept {
  if (progress_lock_.tell()) wake();
}

/// Looks at the rings, and at the sockets, until something has moved: true. Not for long, and not
/// if another thread wants the lock.
bool Transport::spin(Clock::time_point now, Clock::time_point until) {
  const bool crowded = rings_->oversubscribed();
  until = std::min(until, now + (crowded ? yield_time : spin_time));
  auto sockets_due = has_connections_ ? now + sockets_slice : Clock::time_point::max();
  for (bool first = true; now < until && !progress_lock_.are_wanted();
       first = false, now = Clock::now()) {
    const bool yields = crowded && !first;
    for (int i = 0; i < (yields ? 1 : spins_between_looks); ++i) {
      yields ? static_cast<void>(::sched_yield()) : relax();
      if (pump_rings()) return true;
    }
    if (now < sockets_due) continue;
    if (poll_and_pump(0)) return true;
    sockets_due = now + sockets_slice;
  }
  return false;
}

/// The same where there are only sockets, and a processor for each rank.
bool Transport::spin_on_sockets(Clock::time_point now) {
  if (!spins_ || !has_connections_) return false;
  const auto until = now + spin_time;
  do {
    if (poll_and_pump(0)) return true;
  } while (!progress_lock_.are_wanted() && Clock::now() < until);
  return false;
}

/// Waits in poll(2), so that nothing is used while nothing happens.
void Transport::sleep(Clock::time_point until, bool only_look) {
  int timeout_ms = only_look ? 0 : poll_timeout_ms(until);
  if (!rings_ || timeout_ms == 0) {
    poll_and_pump(timeout_ms);
    return;
  }
  // A writer that comes from here on rings; what was written before is seen.
  bell_->lie_down();
  if (pump_rings()) timeout_ms = 0;
  poll_and_pump(timeout_ms);
  bell_->get_up();
  pump_rings();
}

bool Transport::pump_rings() {
  bool moved = rings_->pump(inbox_, on_control_);
  for (OutChannel* channel : ring_outs_) {
    if (channel->state() != OutChannel::State::open) continue;
    if (channel->has_work()) moved = channel->pump() || moved;
    channel->look_for_end();
    moved = moved || channel->state() != OutChannel::State::open;
  }
  return moved;
}

bool Transport::receive_now(Receive& receive) {
  if (receive.from == any_source || !inbox_.is_clear(receive.from)) return false;
  if (InChannel* channel = ins_.find(receive.from)) {
    return receive.into.size() < InChannel::direct_bytes_min && take_from(*channel, receive);
  }
  RingReader* ring = rings_ ? rings_->from(receive.from) : nullptr;
  if (ring == nullptr) return false;
  const int spins = rings_->oversubscribed() ? spins_between_looks : spins_before_step;
  for (int i = 0; !ring->has_news(); ++i) {
    if (i == spins || progress_lock_.are_wanted()) return false;
    relax();
  }
  if (!ring->take(receive)) return false;
  inbox_.note_taken(receive.from, receive.header);
  return true;
}

Clock::time_point Transport::next_wake(Clock::time_point deadline) const {
  if (membership_) deadline = std::min(deadline, losses_read_ + losses_interval);
  if (bell_ && bell_->fd() < 0) deadline = std::min(deadline, Clock::now() + no_bell_interval);
  if (!newcomers_.empty()) {
    const auto first = newcomers_.front().since;
    if (newcomers_.size() >= newcomers_max) deadline = std::min(deadline, first + newcomer_slow);
    if (key_) deadline = std::min(deadline, first + proof_timeout);
  }
  if (!shortage_.empty() && Clock::now() < accept_again_) {
    deadline = std::min(deadline, accept_again_);
  }
  return surveying_ || looks_up() ? std::min(deadline, next_lookup_) : deadline;
}

void Transport::wake() noexcept {
  const std::uint64_t one = 1;
  // It can only fail when the counter is full, and then the waiter wakes anyway.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

void Transport::read_losses() {
  losses_read_ = Clock::now();
  losses_ = membership_->losses();
  losses_heard_.resize(losses_.size(), losses_read_);
  // All that a rank had written when it ended is there.
  if (rings_) rings_->pump(inbox_, on_control_);
}

/// Whether any descriptor had something.
bool Transport::poll_and_pump(int timeout_ms) {
  fill_polled();
  int error = 0;
  const int ready = progress_lock_.released([&] {
    const int count = ::poll(polled_.data(), polled_.size(), timeout_ms);
    if (count < 0) error = errno;
    return count;
  });
  if (ready < 0 && error != EINTR) {
    throw Error(Errc::internal, "cannot poll: " + errno_text(error));
  }
  if (ready > 0) handle_polled();
  if (rings_) sockets_looked_at_ = Clock::now();
  return ready > 0;
}

/// Layout: wake, listener, membership, bell, newcomers, in-channels, out-channels. Some of the
/// first four may be -1, which poll(2) skips; the others are only those that have something to wait
/// for, since poll(2) takes no more entries than the process may have descriptors.
void Transport::fill_polled() {
  polled_.clear();
  polled_.push_back({wake_.get(), POLLIN, 0});
  const bool room = may_accept(Clock::now());
  polled_.push_back({room ? listener_.get() : -1, POLLIN, 0});
  polled_.push_back({membership_ ? membership_->fd() : -1, POLLIN, 0});
  polled_.push_back({bell_ ? bell_->fd() : -1, POLLIN, 0});
  for (const auto& newcomer : newcomers_) polled_.push_back({newcomer.fd.get(), POLLIN, 0});
  polled_ins_.clear();
  for (const auto& [from, channel] : ins_) {
    if (channel->ended() || channel->held()) continue;
    polled_ins_.push_back(channel.get());
    polled_.push_back({channel->fd(), POLLIN, 0});
  }
  polled_outs_.clear();
  for (const auto& [to, channel] : outs_) {
    if (channel->fd() < 0) continue;
    polled_outs_.push_back(channel.get());
    const short writing = channel->wants_to_write() ? POLLOUT : 0;
    polled_.push_back({channel->fd(), static_cast<short>(POLLIN | writing), 0});
  }
}

void Transport::handle_polled() {
  // Data first: what a peer sent before it ended must be seen before the news of its end.
  const std::size_t ins = 4 + newcomers_.size();
  const std::size_t outs = ins + polled_ins_.size();
  const std::size_t greeted = newcomers_.size();
  for (std::size_t i = 0; i < polled_ins_.size(); ++i) {
    if (polled_[ins + i].revents != 0) polled_ins_[i]->pump(inbox_, on_control_);
  }
  for (std::size_t i = 0; i < polled_outs_.size(); ++i) {
    const auto events = polled_[outs + i].revents;
    if ((events & POLLOUT) != 0) polled_outs_[i]->pump();
    if ((events & ~POLLOUT) != 0) polled_outs_[i]->look_for_end();
  }
  for (std::size_t i = greeted; i-- > 0;) {
    if (polled_[4 + i].revents != 0 && greet(newcomers_[i])) {
      newcomers_.erase(newcomers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  if (polled_[1].revents != 0) accept_all();
  if (polled_[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
  }
  if (polled_[2].revents != 0) read_losses();
  if (polled_[3].revents != 0) bell_->clear();
}

}  // namespace dlaunch::transport
