#include "collectives/transport/message/poller.hpp"

#include "runtime/base/os/socket.hpp"

#include <dlaunch/error.hpp>

#include <cerrno>
#include <exception>
#include <utility>

namespace dlaunch::transport {

Poller::Poller() : set_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (!set_) throw Error(Errc::internal, "cannot make an epoll set: " + errno_text(errno));
}

std::uint32_t Poller::take_place(Watched& watched) {
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<std::uint32_t>(places_.size()));
    places_.emplace_back();
    free_places_.reserve(places_.size());  // All may come back, which must not fail.
  }
  const std::uint32_t place = free_places_.back();
  free_places_.pop_back();
  places_[place].watched = &watched;
  return place;
}

void Poller::control(int operation, int fd, std::uint32_t place, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = std::uint64_t{places_[place].turn} << 32 | place;
  if (::epoll_ctl(set_.get(), operation, fd, &event) != 0) {
    throw Error(Errc::internal, "cannot wait for a descriptor: " + errno_text(errno));
  }
}

int Poller::wait_for_any(int timeout_ms) noexcept {
  const int count =
      ::epoll_wait(set_.get(), ready_.data(), static_cast<int>(ready_.size()), timeout_ms);
  return count < 0 ? -errno : count;
}

bool Poller::tell(int count) {
  if (count == -EINTR) return false;
  if (count < 0) throw Error(Errc::internal, "cannot poll: " + errno_text(-count));
  std::exception_ptr failure;
  for (int i = 0; i < count; ++i) {
    const epoll_event event = ready_[static_cast<std::size_t>(i)];
    // Another thread, or one that was told before, may have ended it.
    const Place place = places_[event.data.u64 & 0xffffffffU];
    if (place.watched == nullptr || place.turn != event.data.u64 >> 32) continue;
    try {
      place.watched->on_ready(event.events);
    } catch (...) {
      // Other descriptors may be reported only once.
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
  return count > 0;
}

Poller::Watch::Watch(Poller& poller, int fd, Watched& watched, std::uint32_t events)
    : poller_(&poller), fd_(fd), place_(poller.take_place(watched)) {
  try {
    want(events);
  } catch (...) {
    end();
    throw;
  }
}

Poller::Watch::Watch(Watch&& other) noexcept
    : poller_(std::exchange(other.poller_, nullptr)),
      fd_(other.fd_),
      place_(other.place_),
      events_(other.events_) {}

Poller::Watch& Poller::Watch::operator=(Watch&& other) noexcept {
  if (this == &other) return *this;
  end();
  poller_ = std::exchange(other.poller_, nullptr);
  fd_ = other.fd_;
  place_ = other.place_;
  events_ = other.events_;
  return *this;
}

/// A descriptor that is in the set without events would still tell of its end, again and again.
void Poller::Watch::want(std::uint32_t events) {
  if (poller_ == nullptr || events == events_) return;
  const int operation = events_ == 0 ? EPOLL_CTL_ADD : events == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
  poller_->control(operation, fd_, place_, events);
  if (events_ == 0) ++poller_->size_;
  if (events == 0) --poller_->size_;
  events_ = events;
}

void Poller::Watch::end() noexcept {
  if (poller_ == nullptr) return;
  if (events_ != 0) {
    ::epoll_ctl(poller_->set_.get(), EPOLL_CTL_DEL, fd_, nullptr);
    --poller_->size_;
  }
  Place& place = poller_->places_[place_];
  place.watched = nullptr;
  ++place.turn;
  poller_->free_places_.push_back(place_);
  poller_ = nullptr;
}

}  // namespace dlaunch::transport
