#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server_state.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/asio/post.hpp>
#include <sys/epoll.h>

namespace dlaunch::store {
namespace {

using namespace std::chrono_literals;

/// How long a connection may take to say HELLO, and how many may be doing so at once: enough for
/// all nodes of a big job, since a client that meets a full backlog tries again only after a
/// second. If there are more, or no descriptor is left, the oldest one goes if it has been slow;
/// otherwise the newcomer waits.
constexpr auto hello_timeout = 3s;
/// A newcomer whose bytes lay unread for so long of that time has not been slow; this server has.
constexpr auto unread_long = hello_timeout / 2;
constexpr std::size_t pending_max = 16'384;
constexpr auto pending_slow = 1s;
/// The pause before work that failed for want of memory is tried again.
constexpr auto retry_pause = 10ms;
/// Without descriptors or memory for another connection, accepting rests.
constexpr auto accept_pause = 100ms;
/// How long we wait for a peer to read why it was refused, before the connection is closed.
constexpr auto linger_timeout = 1s;
/// So many that a job's only connection is not left for a later batch by thousands of another job.
constexpr std::size_t events_per_batch = 8192;
/// A timer that goes off later than this shows that this process stood still.
constexpr auto late_at = 100ms;
/// How long all jobs together are served before sockets are polled again, how long newcomers are
/// accepted meanwhile, and how long what is left to be said is sent at the end of it.
constexpr auto batch_time = 1ms;
constexpr auto accept_time = 1ms;
constexpr auto settle_time = 1ms;
/// What the jobs together may have changed that is not durable yet: what is written in some
/// milliseconds, since a small change waits for the one before it.
constexpr std::uint64_t unsaved_bytes_max = 512u << 10;
constexpr std::uint64_t listener_bit = std::uint64_t{1} << 63;

}  // namespace

Server::State::State(asio::io_context& context, Host& owner, const Limits& bounds)
    : io(context), host(owner), limits(bounds), ready(context), timer(context) {
  poll = ::epoll_create1(EPOLL_CLOEXEC);
  if (poll < 0) throw Error(Errc::internal, "cannot poll sockets: " + errno_text(errno));
  ready.assign(poll);
}

void Server::State::start() {
  begin_c10d();
  wait_for_sockets();
  wait_for_time();
}

void Server::State::wait_for_sockets() {
  ready.async_wait(asio::posix::stream_descriptor::wait_read,
                   WaitHandler(sockets_memory,
                               [self = shared_from_this()](const boost::system::error_code& error) {
                                 if (error || self->stopped) return;
                                 // Else it is served next: a batch here would come before what was
                                 // posted earlier, such as answers that are durable now.
                                 if (!self->go_on_posted) self->serve_ready();
                                 self->wait_for_sockets();
                               }));
}

void Server::State::wait_for_time() {
  timer.expires_at(armed);
  timer.async_wait(
      WaitHandler(time_memory, [self = shared_from_this()](const boost::system::error_code& error) {
        if (self->stopped) return;
        if (!error) {  // Else it was armed anew, for an earlier time.
          // If we stood still, messages that should have come by now may lie unread.
          if (Clock::now() - self->armed > late_at) self->serve_ready();
          if (self->stopped) return;
          self->armed = Clock::time_point::max();
          self->batch([&] { self->on_time(Clock::now()); });
        }
        self->wait_for_time();
      }));
}

void Server::State::serve_ready() {
  std::array<epoll_event, events_per_batch> events;
  const int count = ::epoll_wait(poll, events.data(), static_cast<int>(events.size()), 0);
  if (count <= 0 && turns.empty()) return;
  batch([&] {
    const auto now = Clock::now();
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<std::size_t>(i)];
      if ((event.data.u64 & listener_bit) != 0) {
        guarded(nullptr, [&] { accept_some(event.data.u64 & ~listener_bit, now); });
      } else if (Connection* connection = find(event.data.u64)) {
        connection->events |= event.events;
        guarded(connection, [&] { make_due(*connection); });
      }
    }
    take_turns();
  });
}

void Server::State::make_due(Connection& connection) {
  if (connection.due) return;
  turns.add(queue_of(connection), connection.id);
  if (connection.pending) connection.due_since = Clock::now();
  connection.due = true;
}

void Server::State::take_turns() {
  auto now = Clock::now();
  for (const auto batch_end = now + batch_time; !turns.empty() && now < batch_end;
       now = Clock::now()) {
    if (has_much_unsaved(*turns.next())) {
      turns.set_aside();
      continue;
    }
    turn_end = now + turn_time(turns.jobs_due());
    turns.serve_job([&](const auto& job) { return work_for_job(job); },
                    [&](ConnectionId next) {
                      Connection* connection = find(next);
                      if (connection == nullptr) return true;
                      connection->due = false;
                      if (connection->pending) connection->unread += now - connection->due_since;
                      serve_for_job(*connection, now);
                      return Clock::now() < turn_end;
                    });
  }
}

template <class Work>
void Server::State::change_for_job(std::shared_ptr<Turns::Job> job, bool by_stranger, Work work) {
  const std::uint64_t before = commits == nullptr ? 0 : commits->recorded_bytes();
  note_changes(nullptr);
  turn = std::move(job);
  turn_changes = false;
  work();
  if (commits != nullptr) {
    const std::uint64_t after = commits->recorded_bytes();
    turn->unsaved.add(after, after - before);
    // Each has a job of its own.
    if (by_stranger) strangers->unsaved.add(after, after - before);
  }
  note_changes(turn);
  turn = nullptr;
}

void Server::State::serve_for_job(Connection& connection, Clock::time_point now) {
  change_for_job(connection.job, connection.stranger, [&] {
    guarded(&connection, [&] { serve(connection, now); });
    flush_dirty(now, turn_end);
  });
}

bool Server::State::work_for_job(const std::shared_ptr<Turns::Job>& job) {
  bool has_more = true;
  change_for_job(job, false, [&] {
    for (auto now = Clock::now(); has_more && now < turn_end; now = Clock::now()) {
      has_more = false;
      guarded(nullptr, [&] { has_more = host.on_turn(job->name()); });
      flush_dirty(now, turn_end);
    }
  });
  return !has_more;
}

/// No more than is left to the others, so that there is always some: a job alone may have half.
bool Server::State::has_much_unsaved(Turns::Job& job) const {
  if (commits == nullptr || commits->stuck()) return false;
  const std::uint64_t durable = commits->durable_bytes();
  const std::uint64_t own = job.unsaved.beyond(durable);
  return own > 0 && own + commits->recorded_bytes() - durable > unsaved_bytes_max;
}

void Server::State::go_on_soon() {
  if (go_on_posted) return;
  try {
    asio::post(io, [self = shared_from_this()] {
      self->go_on_posted = false;
      if (!self->stopped) self->serve_ready();
    });
    go_on_posted = true;
  } catch (const std::exception& error) {
    failed(nullptr, error.what());
    go_on_later();
  }
}

void Server::State::go_on_later() noexcept {
  armed = std::min(armed, Clock::now() + retry_pause);
  timer.cancel();
}

void Server::State::failed(Connection* connection, const char* why) noexcept {
  ++counters.failed;
  const ConnectionId who = connection == nullptr ? 0 : connection->id;
  if (connection != nullptr) end(*connection);
  try {
    if (hear_failed) hear_failed(who, std::string("serving it failed: ") + why);
  } catch (const std::exception&) {  // It is counted.
  }
}

void Server::State::settle(Clock::time_point now) {
  const auto end = now + settle_time;
  do {
    flush_dirty(now, end);
    while (!ended.empty()) {
      const ConnectionId id = ended.back();
      ended.pop_back();
      destroy(id);
      out_of_descriptors = false;
    }
  } while (!dirty.empty());
  if (!paused.empty() && !out_of_descriptors && pending_count < pending_max) resume_accepting();
}

void Server::State::send_soon() {
  if (in_batch) return;
  flush_dirty(Clock::now());
  if (ended.empty() || sweep_posted) return;
  try {
    asio::post(io, [self = shared_from_this()] {
      self->sweep_posted = false;
      if (!self->stopped) self->batch([] {});
    });
    sweep_posted = true;
  } catch (const std::exception&) {
    go_on_later();
  }
}

void Server::State::arm_surely() {
  try {
    arm();
  } catch (const std::exception& error) {
    failed(nullptr, error.what());
    go_on_later();
  }
}

void Server::State::arm() {
  std::optional<Clock::time_point> next;
  const auto consider = [&](std::optional<Clock::time_point> when) {
    if (when && (!next || *when < *next)) next = when;
  };
  consider(native.next_deadline());
  consider(c10d->next_deadline());
  if (!pending.empty()) consider(pending.front().first + hello_timeout);
  if (!lingering.empty()) consider(lingering.front().first + linger_timeout);
  if (!paused.empty()) consider(resume_at);
  if (!next || *next >= armed) return;
  armed = *next;
  timer.cancel();
}

void Server::State::on_time(Clock::time_point now) {
  while (!pending.empty() && pending.front().first + hello_timeout <= now) {
    if (!give_more_time(now)) drop_oldest_pending();
  }
  while (!lingering.empty() && lingering.front().first + linger_timeout <= now) {
    if (Connection* connection = find(lingering.front().second)) end(*connection);
    lingering.pop_front();
  }
  if (!paused.empty() && resume_at <= now) resume_accepting();
}

void Server::State::accept_some(std::uint64_t index, Clock::time_point now) {
  const Listener& listener = listeners[index];
  // Those that are left are accepted in the next batch. One is accepted in any case, so that one
  // listener's crowd does not keep the other's out.
  const auto end = now + accept_time;
  for (bool first = true; first || Clock::now() < end; first = false) {
    if (!may_accept(now)) return pause_accepting(index, pending.front().first + pending_slow);
    if (connections.size() >= connection_limits.all) {
      return make_room(index, now, "as many as may be open");
    }
    unique_fd socket(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (is_shortage(errno)) make_room(index, now, errno_text(errno));
      return;
    }
    ++counters.accepted;
    if (listener.unix_socket && !listener.access && !is_of_same_user(socket.get())) {
      ++counters.garbage;
      continue;
    }
    std::string unwelcome = listener.access ? unwelcome_user(socket.get(), *listener.access) : "";
    Protocols protocols = listener.protocols;
    if (protocols.c10d && !admits_c10d(socket.get())) {
      protocols.c10d = false;
      ++counters.strangers;
      if (!protocols.native) continue;
    }
    Connection& connection = add(std::move(socket), protocols);
    connection.unwelcome = std::move(unwelcome);
    guarded(&connection, [&] { await_hello(connection, !listener.unix_socket, now); });
  }
}

void Server::State::await_hello(Connection& connection, bool counts, Clock::time_point now) {
  if (counts && !count_peer(connection)) {
    ++counters.crowded;
    return end(connection);
  }
  if (connection.protocols.c10d) {
    connection.silent = true;
    ++counters.silent;
  } else {
    make_pending(connection, now);
  }
}

/// "the socket unix:/run/x is not for uid 1000 (pid 42): ..."; empty: it is.
std::string Server::State::unwelcome_user(int socket, const SocketAccess& access) {
  const auto user = peer_user(socket);
  if (user && access.admits(*user)) return "";
  return "the socket " + local_address(socket).to_string() + " is not for " +
         (user ? user->to_string() : "a user whom the kernel does not tell") +
         ", who is neither root nor its owner nor of its group";
}

/// An IPv4 peer is the same whether it came to an IPv4 or an IPv6 socket.
bool Server::State::admits_c10d(int socket) const {
  if (!c10d_hosts) return true;
  const Address peer = peer_address(socket);
  if (peer.is_loopback()) return true;
  std::string numeric = peer.host();
  constexpr std::string_view mapped = "::ffff:";
  if (numeric.starts_with(mapped) && numeric.find('.') != std::string::npos) {
    numeric.erase(0, mapped.size());
  }
  return numeric.starts_with("127.") || c10d_hosts->contains(numeric);
}

bool Server::State::count_peer(Connection& connection) {
  if (connection_limits.peer == ConnectionLimits().peer) return true;
  std::string from = peer_address(connection.socket.get()).host();
  std::size_t& count = per_peer[from];
  if (count >= connection_limits.peer) return false;
  ++count;
  connection.peer = std::move(from);
  return true;
}

bool Server::State::may_accept(Clock::time_point now) {
  while (pending_count >= pending_max && drop_slow_pending(now)) continue;
  return pending_count < pending_max;
}

/// Makes room for a newcomer. A dropped connection frees its descriptor when the batch is over, and
/// the newcomer is accepted in the next one. If there is nobody to drop, accepting rests.
void Server::State::make_room(std::uint64_t index, Clock::time_point now, const std::string& why) {
  if (drop_slow_pending(now)) return;
  if (choose_to_go) {
    if (Connection* connection = find(choose_to_go(now))) return end(*connection);
  }
  if (hear_full) {
    hear_full("no descriptor is left for another connection: there are " +
              std::to_string(connections.size()) + " (" + why + "), and newcomers wait");
  }
  out_of_descriptors = true;
  pause_accepting(index, now + accept_pause);
}

void Server::State::make_pending(Connection& connection, Clock::time_point now) {
  pending.emplace_back(now, connection.id);
  connection.pending = true;
  ++pending_count;
}

void Server::State::no_longer_pending(Connection& connection) {
  if (!std::exchange(connection.pending, false)) return;
  --pending_count;
  // The queue is in order of time, and most say HELLO in that order.
  while (!pending.empty()) {
    const Connection* first = find(pending.front().second);
    if (first != nullptr && first->pending) break;
    pending.pop_front();
  }
}

/// Drops the oldest unwelcomed connection if it has been slow; false if none has.
bool Server::State::drop_slow_pending(Clock::time_point now) {
  if (pending.empty() || pending.front().first + pending_slow > now) return false;
  drop_oldest_pending();
  return true;
}

/// Gives the oldest unwelcomed connection its time once more if its bytes lay unread for long.
bool Server::State::give_more_time(Clock::time_point now) {
  const ConnectionId id = pending.front().second;
  Connection* connection = find(id);
  if (connection == nullptr || !connection->pending) return false;
  if (connection->due) connection->unread += now - std::exchange(connection->due_since, now);
  if (std::exchange(connection->unread, {}) < unread_long) return false;
  pending.emplace_back(now, id);
  pending.pop_front();
  return true;
}

void Server::State::drop_oldest_pending() {
  Connection* connection = find(pending.front().second);
  pending.pop_front();
  if (connection == nullptr || !connection->pending) return;
  ++counters.timed_out;
  end(*connection);
}

void Server::State::pause_accepting(std::uint64_t index, Clock::time_point until) {
  paused.push_back(index);
  watch_listener(index, EPOLL_CTL_MOD, 0);
  resume_at = until;
}

void Server::State::resume_accepting() {
  out_of_descriptors = false;
  for (const std::uint64_t index : std::exchange(paused, {})) {
    watch_listener(index, EPOLL_CTL_MOD, EPOLLIN);
  }
}

void Server::State::watch_listener(std::uint64_t index, int operation, std::uint32_t events) {
  epoll_event event{events, {.u64 = index | listener_bit}};
  if (::epoll_ctl(poll, operation, listeners[index].fd.get(), &event) != 0) {
    throw Error(Errc::internal, "cannot poll a listening socket: " + errno_text(errno));
  }
}

void Server::State::stop() {
  if (std::exchange(stopped, true)) return;
  for (auto& [id, each] : connections) {  // Last words may have been left for a later turn.
    Connection& connection = *each;
    if (connection.events != 0) guarded(&connection, [&] { flush(connection, Clock::now()); });
  }
  for (auto& [id, connection] : connections) connection->session.reset();
  connections.clear();
  dirty.clear();
  listeners.clear();
  boost::system::error_code ignored;  // Closing cannot be helped further.
  ready.close(ignored);
  timer.cancel();
}

}  // namespace dlaunch::store
