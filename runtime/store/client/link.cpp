#include "runtime/store/client/link.hpp"

#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/client/socket_turn.hpp"

#include <array>
#include <cerrno>
#include <thread>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>

namespace dlaunch::store {
namespace {

constexpr auto reconnect_pause = std::chrono::milliseconds(100);

ClientSession::Options session_options(const Client::Options& options) {
  const auto& member = options.hello.member;
  // "rank 1, joining rank 0's store at h:p".
  const std::string rank = member ? "rank " + std::to_string(member->rank) + ", " : "";
  return {.hello = options.hello,
          .key = options.key,
          .joining = rank + "joining " + options.peer_name,
          .peer = options.peer_name};
}

/// Others may use the link meanwhile.
struct Unlocked {
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : held(lock) { held.unlock(); }
  ~Unlocked() { held.lock(); }
  std::unique_lock<std::mutex>& held;
};

}  // namespace

Link::Link(unique_fd connected, Client::Options options, Client::OnPush on_push,
           Clock::time_point deadline)
    : options_(std::move(options)),
      on_push_(std::move(on_push)),
      owner_(::getpid()),
      socket_(std::move(connected)),
      kick_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      fd_(socket_.get()),
      session_(session_options(options_)) {
  if (!kick_) throw Error(Errc::internal, "cannot make an eventfd: " + errno_text(errno));
  Lock lock(mutex_);
  greet(lock, deadline);
  take_events(lock);  // Frames pushed right behind WELCOME are read already.
}

/// Says goodbye, unless this is a forked child: then the connection is the parent's.
Link::~Link() {
  if (!home_.is_here() || !socket_) return;
  const Lock lock(mutex_);
  if (failure_) return;
  session_.leave();
  send_queued();
  ::shutdown(socket_.get(), SHUT_WR);
}

void Link::require_ours() const {
  if (home_.is_here()) return;
  throw Error(Errc::misuse, "this world belongs to the parent process, pid " +
                                std::to_string(owner_) +
                                "; a forked child may not use it and needs a rank of its own");
}

Link::Lock Link::lock() const {
  require_ours();
  Lock held(mutex_);
  if (failure_) throw Error(*failure_);
  return held;
}

// ---- Calls ----

Link::Reply Link::call(wire::Type type, BytesView payload, Clock::time_point deadline,
                       const std::string& what) {
  const auto start = Clock::now();
  std::optional<Reply> reply;
  std::condition_variable wake;
  Lock held = lock();
  const std::uint64_t request = session_.request(
      type, welcome().epoch, payload,
      [&](const wire::FrameHeader& header, BytesView answer) {
        reply = Reply{header, {answer.begin(), answer.end()}};
        wake.notify_one();
      },
      start);
  // However this call ends, nobody may write into its result afterwards.
  struct Ended {
    Link& link;
    std::uint64_t request;
    ~Ended() {
      link.session_.forget(request, Clock::now());
      link.flush();
    }
  };
  const Ended ended{*this, request};
  flush();
  if (!wait_until(held, wake, deadline, [&] { return reply.has_value(); })) {
    throw Error(Errc::timeout, what + ": no answer from " + options_.peer_name + " for " +
                                   seconds_text(Clock::now() - start));
  }
  return *std::move(reply);
}

std::uint64_t Link::subscribe(std::string_view key) {
  const Lock held = lock();
  Bytes watch, get;
  wire::encode(watch, wire::Watch{key});
  wire::encode(get, wire::Get{key});
  const auto now = Clock::now();
  const std::uint64_t number = subscriptions_.size();
  Subscription& subscription = subscriptions_.try_emplace(number, key).first->second;
  const auto take = [this, &subscription](const wire::FrameHeader& header, BytesView payload) {
    take_watch_reply(subscription, header, payload);
  };
  session_.request(wire::Watch::type, welcome().epoch, watch, take, now);
  session_.request(wire::Get::type, welcome().epoch, get, take, now, true);
  flush();
  return number;
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
  session_.tell(type, welcome().epoch, payload);
  flush();
}

void Link::dispatch() {
  Lock held = lock();
  if (leading_) return;  // The leader reads it.
  const Leading leading(*this);
  while (!session_.broken() && receive(session_, socket_.get())) take_events(held);
  if (!session_.broken()) return;
  if (!options_.reconnect) fail(session_.broken()->error);
  throw Error(session_.broken()->error);
}

// ---- Leading and following ----

Link::Leading::Leading(Link& link) : link_(link) { link_.leading_ = true; }
Link::Leading::~Leading() {
  link_.leading_ = false;
  link_.hand_over();
}

/// Makes another waiting thread the leader, if there is one.
void Link::hand_over() {
  if (!leading_ && !followers_.empty()) followers_.front()->notify_one();
}

void Link::fail(const Error& error) {
  failure_ = error;
  for (std::condition_variable* wake : followers_) wake->notify_one();
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
    // The wake-up may have been an offer to lead: a thread that leaves now passes it on.
    if (ready() || failure_ || Clock::now() >= deadline) hand_over();
  }
  return true;
}

/// Waits for something to read, reads it, and hands answers to the callers that wait for them.
void Link::lead(Lock& lock, Clock::time_point deadline) {
  const Leading leading(*this);
  if (!session_.broken()) {
    const auto events = static_cast<short>(session_.unsent().empty() ? POLLIN : POLLIN | POLLOUT);
    std::array<pollfd, 2> ready{{{socket_.get(), events, 0}, {kick_.get(), POLLIN, 0}}};
    int count = 0;
    {
      const Unlocked unlocked(lock);
      count = ::poll(ready.data(), ready.size(), poll_timeout_ms(deadline));
    }
    if (count <= 0) return;
    if (ready[1].revents != 0) {
      std::uint64_t kicks = 0;  // Only to make it unreadable: what to send is in the session.
      [[maybe_unused]] const auto size = ::read(kick_.get(), &kicks, sizeof kicks);
    }
    if ((ready[0].revents & POLLOUT) != 0) send_queued();
    if ((ready[0].revents & ~POLLOUT) != 0 && receive(session_, socket_.get())) take_events(lock);
  }
  if (!session_.broken()) return;
  if (options_.reconnect) return reconnect(lock, deadline);
  fail(session_.broken()->error);
  throw Error(session_.broken()->error);
}

void Link::take_events(Lock& lock) {
  std::vector<Push> pushes;
  while (auto event = session_.next(Clock::now())) {
    if (event->kind == ClientSession::Event::Kind::push) {
      pushes.push_back({event->header, Bytes(event->payload.begin(), event->payload.end()),
                        std::move(event->descriptors)});
    } else if (event->answer) {
      event->answer(event->header, event->payload);
    }
  }
  flush();  // Answers make room for what was held back.
  if (pushes.empty() || !on_push_) return;
  const Unlocked unlocked(lock);  // The callback may use this very link.
  const auto deliver = [&]() noexcept {
    for (Push& push : pushes) on_push_(push.header, push.payload, std::move(push.descriptors));
  };
  deliver();
}

void Link::take_watch_reply(Subscription& subscription, const wire::FrameHeader& header,
                            BytesView payload) {
  const auto copied = [](BytesView bytes) { return Bytes(bytes.begin(), bytes.end()); };
  Watched& watched = subscription.watched;
  if (const auto change = wire::decode<wire::Changed>(payload);
      change && header.type == wire::Type::changed) {
    KeyChange next{change->kind, std::string(change->key), std::nullopt};
    if (change->value) next.value = copied(*change->value);
    watched.changed(std::move(next));
  } else if (header.type == wire::Type::found) {
    if (const auto value = wire::decode<wire::Found>(payload)) {
      watched.is_now(copied(value->value));
    }
  } else if (header.type == wire::Type::absent) {
    watched.is_now(std::nullopt);
  }
  if (watched.has_news()) subscription.wake.notify_one();
}

// ---- Sending ----

/// Sends as much as the socket takes now; false when there is more. An error shows when the leader
/// reads.
bool Link::send_queued() {
  const Sent sent = store::send(session_, socket_.get());
  while (sent == Sent::broken && !session_.unsent().empty()) {
    session_.sent(session_.unsent().size());
  }
  return sent != Sent::blocked;
}

void Link::flush() {
  if (send_queued() || !leading_) return;
  const std::uint64_t kick = 1;
  [[maybe_unused]] const auto written = ::write(kick_.get(), &kick, sizeof kick);
}

// ---- Connecting ----

/// Throws what a program of another kind says that waited for a line's end.
void Link::hear_line(Lock& lock) {
  if (!end_line(socket_.get())) return;
  pollfd ready{socket_.get(), POLLIN, 0};
  int count = 0;
  {
    const Unlocked unlocked(lock);
    count = ::poll(&ready, 1, poll_timeout_ms(Clock::now() + line_grace));
  }
  if (count > 0) receive(session_, socket_.get());
  static_cast<void>(session_.next(Clock::now()));
  if (session_.broken()) throw Error(session_.broken()->error);
}

/// Until WELCOME has come, and what is unanswered is on its way.
void Link::greet(Lock& lock, Clock::time_point deadline) {
  const std::string silent =
      "connected, but it does not answer" + (welcomed_ ? "" : silence_question(socket_.get()));
  Notice notice = options_.notice;
  session_.begin(true, Clock::now());
  for (;;) {
    const bool all_sent = send_queued();
    if (session_.next(Clock::now())) break;
    if (session_.broken()) throw Error(session_.broken()->error);
    pollfd ready{socket_.get(), static_cast<short>(all_sent ? POLLIN : POLLIN | POLLOUT), 0};
    int count = 0;
    {
      const Unlocked unlocked(lock);
      count = ::poll(&ready, 1, poll_timeout_ms(notice.before(deadline)));
    }
    if (count == 0) notice.tell(silent);
    if (count <= 0 && Clock::now() >= deadline) {
      if (!welcomed_) hear_line(lock);
      session_.ended(silent);
      throw Error(Errc::timeout, session_options(options_).joining + ": " + silent);
    }
    if (count > 0 && (ready.revents & ~POLLOUT) != 0) receive(session_, socket_.get());
  }
  welcomed_ = true;
  session_.resume(Clock::now());
  flush();
}

/// The connection is gone: makes another and repeats what is unanswered, in order. Only the leader
/// comes here, so nobody else reads or connects meanwhile.
void Link::reconnect(Lock& lock, Clock::time_point deadline) {
  for (;;) {
    try {
      unique_fd connected;
      {
        const Unlocked unlocked(lock);
        connected = options_.reconnect(deadline);
      }
      socket_ = std::move(connected);
      fd_ = socket_.get();
      greet(lock, deadline);
      break;
    } catch (const Error& error) {
      // A server that refuses or is of another version now will be so later. Other callers may have
      // more patience.
      if (error.errc() == Errc::refused || session_.broken()->final) {
        fail(error);
        throw;
      }
      if (Clock::now() + reconnect_pause >= deadline) throw;
      const Unlocked unlocked(lock);
      std::this_thread::sleep_for(reconnect_pause);
    }
  }
  take_events(lock);
}

}  // namespace dlaunch::store
