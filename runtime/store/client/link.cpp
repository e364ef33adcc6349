#include "runtime/store/client/link.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/client/greeting.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>

namespace dlaunch::store {
namespace {

constexpr auto reconnect_pause = std::chrono::milliseconds(100);

Error failed(const wire::Failed& failure, const std::string& what, const std::string& peer,
             Clock::duration waited) {
  if (failure.code == Errc::timeout) {
    return Error(Errc::timeout,
                 what + ": timed out after " + seconds_text(waited) + ", " + failure.sentence);
  }
  return Error(failure.code, what + ": refused by " + peer + ": " + failure.sentence);
}

}  // namespace

Link::Link(unique_fd connected, Client::Options options, Client::OnPush on_push,
           Clock::time_point deadline)
    : options_(std::move(options)),
      on_push_(std::move(on_push)),
      owner_(::getpid()),
      kick_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!kick_) throw Error(Errc::internal, "cannot make an eventfd: " + errno_text(errno));
  tls_ = secure(connected.get(), reader_, options_, deadline);
  welcome_ = greet(connected.get(), reader_, tls_.get(), options_, deadline);
  socket_ = std::move(connected);
  fd_ = socket_.get();
  Lock lock(mutex_);
  take_frames(lock);  // Frames pushed right behind WELCOME are read already.
}

/// Says goodbye, unless this is a forked child: then the connection is the parent's.
Link::~Link() {
  if (!home_.is_here() || !socket_) return;
  Bytes frame;
  wire::encode_frame(frame, {0, wire::Type::goodbye, 0, 0, 0}, BytesView{});
  Lock lock(mutex_);
  if (failure_) return;
  queue(frame);
  ::shutdown(socket_.get(), SHUT_WR);
}

/// In a forked child a thread of the parent's may hold the lock for ever.
Link::Lock Link::lock() const {
  if (!home_.is_here()) {
    throw Error(Errc::misuse, "this connection to " + options_.peer_name + " belongs to process " +
                                  std::to_string(owner_) +
                                  ", which forked this one; a child has to join by itself");
  }
  Lock held(mutex_);
  check_usable();
  return held;
}

void Link::check_usable() const {
  if (failure_) throw Error(*failure_);
}

// ---- Calls ----

std::uint64_t Link::begin(wire::Type type, BytesView payload, Bytes& frame) {
  if (payload.size() > wire::frame_bytes_max) {
    throw Error(Errc::refused, "a request of " + std::to_string(payload.size()) +
                                   " bytes is too big; the limit is " +
                                   std::to_string(wire::frame_bytes_max));
  }
  const std::uint64_t request = next_request_++;
  wire::encode_frame(frame, {0, type, 0, request, welcome_.epoch}, payload);
  return request;
}

Link::Reply Link::call(wire::Type type, Bytes payload, Clock::time_point deadline,
                       const std::string& what) {
  const auto start = Clock::now();
  Pending pending;
  pending.change = wire::is_change(type);
  std::uint64_t request = 0;
  {
    Lock held = lock();
    if (pending.change) {
      // Those who are in the way have deadlines of their own, so there is an end to it.
      room_.wait(held, [&] { return failure_ || changes_ < wire::unanswered_changes_max; });
      check_usable();
    }
    request = begin(type, payload, pending.frame);
    pending_.emplace(request, &pending);
    changes_ += pending.change ? 1 : 0;
    // However this call ends, nobody may write into it afterwards.
    struct Ended {
      Link& link;
      std::uint64_t request;
      ~Ended() {
        const auto found = link.pending_.find(request);
        if (found->second->change) --link.changes_;
        link.pending_.erase(found);
        link.room_.notify_one();
      }
    };
    const Ended ended{*this, request};
    queue(pending.frame);
    if (!wait_until(held, pending.wake, deadline, [&] { return pending.reply.has_value(); })) {
      throw Error(Errc::timeout, what + ": no answer from " + options_.peer_name + " for " +
                                     seconds_text(Clock::now() - start));
    }
  }
  if (pending.reply->header.type == wire::Type::failed) {
    const auto failure = wire::decode<wire::Failed>(pending.reply->payload);
    throw failed(failure.value_or(wire::Failed{Errc::internal, "an answer that cannot be read"}),
                 what, options_.peer_name, Clock::now() - start);
  }
  return *std::move(pending.reply);
}

std::uint64_t Link::subscribe(std::string_view key) {
  const Lock held = lock();
  Bytes payload, frames;
  wire::encode(payload, wire::Watch{key});
  const std::uint64_t request = begin(wire::Type::watch, payload, frames);
  payload.clear();
  wire::encode(payload, wire::Get{key});
  const std::uint64_t get_request = begin(wire::Type::get, payload, frames);
  Subscription& subscription = subscriptions_.try_emplace(request, key).first->second;
  subscription.frames = std::move(frames);
  subscription.get_request = get_request;
  queue(subscription.frames);
  return request;
}

KeyChange Link::next_change(std::uint64_t number, Clock::time_point deadline,
                            const std::string& what) {
  const auto start = Clock::now();
  Lock held = lock();
  Subscription& subscription = subscriptions_.at(number);
  if (!wait_until(held, subscription.wake, deadline,
                  [&] { return subscription.watched.has_news(); })) {
    throw Error(Errc::timeout, what + ": no change within " + seconds_text(Clock::now() - start));
  }
  return subscription.watched.take();
}

void Link::tell(wire::Type type, BytesView payload) {
  const Lock held = lock();
  Bytes frame;
  wire::encode_frame(frame, {0, type, 0, 0, welcome_.epoch}, payload);
  queue(frame);
}

void Link::dispatch() {
  Lock held = lock();
  if (leading_) return;  // The leader reads it.
  const Leading leading(*this);
  while (receive(held)) {
  }
}

// ---- Leading and following ----

Link::Leading::Leading(Link& link) : link_(link) { link_.leading_ = true; }
Link::Leading::~Leading() {
  link_.leading_ = false;
  link_.hand_over();
}

/// Somebody has to read, unless nobody waits.
void Link::hand_over() {
  if (!leading_ && !followers_.empty()) followers_.front()->notify_one();
}

void Link::fail(const Error& error) {
  failure_ = error;
  for (std::condition_variable* wake : followers_) wake->notify_one();
  room_.notify_all();
}

/// False when the deadline has passed and `ready` is still false.
template <class Ready>
bool Link::wait_until(Lock& lock, std::condition_variable& wake, Clock::time_point deadline,
                      Ready ready) {
  while (!ready()) {
    if (failure_) throw Error(*failure_);
    if (Clock::now() >= deadline) return false;
    if (!leading_) {
      lead(lock, deadline);
      continue;
    }
    const auto place = followers_.insert(followers_.end(), &wake);
    if (deadline == Clock::time_point::max()) {
      wake.wait(lock);
    } else {
      wake.wait_until(lock, deadline);
    }
    followers_.erase(place);
    // The wake-up may have been an offer to lead: whoever leaves now passes it on.
    if (ready() || failure_ || Clock::now() >= deadline) hand_over();
  }
  return true;
}

/// Waits for something to read, reads it, and answers whoever it is for.
void Link::lead(Lock& lock, Clock::time_point deadline) {
  const Leading leading(*this);
  const auto events = static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT);
  std::array<pollfd, 2> ready{{{socket_.get(), events, 0}, {kick_.get(), POLLIN, 0}}};
  lock.unlock();
  const int count = ::poll(ready.data(), ready.size(), poll_timeout_ms(deadline));
  lock.lock();
  if (count <= 0) return;
  if (ready[1].revents != 0) {
    std::uint64_t kicks = 0;  // Only to make it unreadable: what to send is in unsent_.
    [[maybe_unused]] const auto size = ::read(kick_.get(), &kicks, sizeof kicks);
  }
  if ((ready[0].revents & POLLOUT) != 0) send_queued();
  if ((ready[0].revents & ~POLLOUT) == 0) return;
  try {
    receive(lock);
  } catch (const Error&) {
    if (!options_.reconnect) throw;
    reconnect(lock, deadline);
  }
}

/// Reads once; false when there was nothing. Throws when the connection is at an end.
bool Link::receive(Lock& lock) {
  lock.unlock();
  const auto received = reader_.receive(socket_.get());
  const int error = errno;
  lock.lock();
  if (received == FrameReader::Received::nothing) return false;
  if (received == FrameReader::Received::closed) {
    const Error lost(Errc::peer_lost, "lost " + options_.peer_name + ": " +
                                          (error == 0 ? std::string("it closed the connection")
                                                      : errno_text(error)));
    if (!options_.reconnect) fail(lost);
    throw lost;
  }
  take_frames(lock);
  return true;
}

void Link::take_frames(Lock& lock) {
  std::vector<Push> pushes;
  while (auto frame = reader_.next()) {
    if ((frame->header.flags & wire::reply) != 0) {
      take_reply(*frame);
    } else {
      pushes.push_back({frame->header, Bytes(frame->payload.begin(), frame->payload.end()),
                        std::move(frame->descriptors)});
    }
  }
  if (pushes.empty() || !on_push_) return;
  lock.unlock();  // The callback may use this very link.
  const auto deliver = [&]() noexcept {
    for (Push& push : pushes) on_push_(push.header, push.payload, std::move(push.descriptors));
  };
  deliver();
  lock.lock();
}

void Link::take_reply(const FrameReader::Frame& frame) {
  if (const auto found = pending_.find(frame.header.request); found != pending_.end()) {
    found->second->reply = Reply{frame.header, {frame.payload.begin(), frame.payload.end()}};
    found->second->wake.notify_one();
    return;
  }
  take_watch_reply(frame);  // Or nobody waits for it any longer.
}

void Link::take_watch_reply(const FrameReader::Frame& frame) {
  const auto copied = [](BytesView bytes) { return Bytes(bytes.begin(), bytes.end()); };
  const auto found = std::ranges::find_if(subscriptions_, [&](const auto& each) {
    return each.first == frame.header.request || each.second.get_request == frame.header.request;
  });
  if (found == subscriptions_.end()) return;
  Watched& watched = found->second.watched;
  if (const auto change = wire::decode<wire::Changed>(frame.payload);
      change && frame.header.type == wire::Type::changed) {
    KeyChange next{change->kind, std::string(change->key), std::nullopt};
    if (change->value) next.value = copied(*change->value);
    watched.changed(std::move(next));
  } else if (frame.header.type == wire::Type::found) {
    if (const auto value = wire::decode<wire::Found>(frame.payload)) {
      watched.is_now(copied(value->value));
    }
  } else if (frame.header.type == wire::Type::absent) {
    watched.is_now(std::nullopt);
  }
  if (watched.has_news()) found->second.wake.notify_one();
}

// ---- Sending ----

void Link::queue(BytesView frame) {
  if (!tls_) {
    unsent_.insert(unsent_.end(), frame.begin(), frame.end());
  } else if (!tls_->seal(frame, unsent_)) {
    return;  // The leader finds it broken, too.
  }
  send_queued();
  if (unsent_.empty() || !leading_) return;
  const std::uint64_t kick = 1;
  [[maybe_unused]] const auto written = ::write(kick_.get(), &kick, sizeof kick);
}

/// Sends as much as the socket takes now. An error shows when the leader reads.
void Link::send_queued() {
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t n = ::send(socket_.get(), unsent_.data() + sent, unsent_.size() - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) sent = unsent_.size();
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
}

// ---- Connecting ----

/// The connection is gone: makes another and repeats what is unanswered, in order. Only the leader
/// comes here, so nobody else reads or connects meanwhile.
void Link::reconnect(Lock& lock, Clock::time_point deadline) {
  lock.unlock();
  unique_fd connected;
  std::unique_ptr<TlsChannel> tls;
  FrameReader reader;
  std::optional<wire::Welcome> welcome;
  std::optional<Error> final;
  while (!welcome) {
    try {
      connected = options_.reconnect(deadline);
      tls = secure(connected.get(), reader, options_, deadline);
      welcome = greet(connected.get(), reader, tls.get(), options_, deadline);
    } catch (const Error& error) {
      const bool in_time = Clock::now() + reconnect_pause < deadline;
      if (in_time && error.errc() != Errc::refused && error.errc() != Errc::version) {
        reader = FrameReader();
        std::this_thread::sleep_for(reconnect_pause);
        continue;
      }
      final = error;
      break;
    }
  }
  lock.lock();
  if (final) {
    // A server that refuses or is of another version now will be so later. Other callers may have
    // more patience.
    if (final->errc() == Errc::refused || final->errc() == Errc::version) fail(*final);
    throw Error(*final);
  }
  socket_ = std::move(connected);
  fd_ = socket_.get();
  reader_ = std::move(reader);
  tls_ = std::move(tls);
  welcome_ = *welcome;
  unsent_.clear();
  for (const auto& [request, subscription] : subscriptions_) queue(subscription.frames);
  for (const auto& [request, pending] : pending_) {
    if (!pending->reply) queue(pending->frame);
  }
  take_frames(lock);
}

}  // namespace dlaunch::store
