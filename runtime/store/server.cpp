// Longer than the rest, because accepting, reading, writing and time share the state of the loop.
#include "runtime/store/server.hpp"

#include "runtime/base/socket.hpp"
#include "runtime/store/c10d_session.hpp"
#include "runtime/store/connection.hpp"
#include "runtime/store/native.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <exception>
#include <optional>
#include <system_error>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/unordered/unordered_flat_map.hpp>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>

namespace dlaunch::store {
namespace asio = boost::asio;
namespace {

using namespace std::chrono_literals;

/// How long a connection may take to say HELLO, and how many may be about it at once. When that
/// many are and another comes, the oldest goes if it has been slow, else the other waits.
constexpr auto hello_timeout = 3s;
constexpr std::size_t pending_max = 256;
constexpr auto pending_slow = 250ms;
/// Without descriptors or memory for another connection, accepting rests.
constexpr auto accept_pause = 100ms;
/// How long we wait for a peer to read why it was refused, before the connection is closed.
constexpr auto linger_timeout = 1s;
constexpr std::size_t events_per_batch = 256;
constexpr int accepts_per_event = 64;
constexpr std::size_t read_bytes = 256u << 10;
constexpr std::uint64_t listener_bit = std::uint64_t{1} << 63;

struct Listener {
  unique_fd fd;
  Protocols protocols;
  bool unix_socket = false;
};

void set_option(int fd, int level, int name, int value) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    throw Error(Errc::internal, "cannot prepare a listening socket: " + errno_text(errno));
  }
}

/// Accepted sockets inherit these, which saves system calls for each.
void prepare(const Listener& listener) {
  set_nonblocking(listener.fd.get(), true);
  if (listener.unix_socket) return;
  set_option(listener.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(listener.fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
}

/// Over a unix socket only the same user, or root, is served.
bool same_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

}  // namespace

/// One epoll set holds every socket of the server and is itself one descriptor of the io_context:
/// a wake-up serves all that are ready, at one system call for the polling, one to read and one to
/// write for each of them. (An Asio socket each would cost one more for every wait.)
struct Server::State final : Host, Connection::Owner, std::enable_shared_from_this<Server::State> {
  State(asio::io_context& context, Host& owner, const Limits& bounds)
      : io(context), host(owner), limits(bounds), ready(context), timer(context) {
    poll = ::epoll_create1(EPOLL_CLOEXEC);
    if (poll < 0) throw Error(Errc::internal, "cannot poll sockets: " + errno_text(errno));
    ready.assign(poll);
  }

  // ---- The loop ----

  void start() {
    const auto stop_on_failure = [](const std::exception_ptr& failure) {
      if (failure) std::rethrow_exception(failure);  // Out of run(): the host has to know.
    };
    asio::co_spawn(io, serve(shared_from_this()), stop_on_failure);
    asio::co_spawn(io, keep_time(shared_from_this()), stop_on_failure);
  }

  static asio::awaitable<void> serve(std::shared_ptr<State> self) {
    boost::system::error_code error;
    while (!self->stopped) {
      co_await self->ready.async_wait(asio::posix::stream_descriptor::wait_read,
                                      asio::redirect_error(asio::use_awaitable, error));
      if (error || self->stopped) co_return;
      self->serve_ready();
    }
  }

  static asio::awaitable<void> keep_time(std::shared_ptr<State> self) {
    boost::system::error_code error;
    while (!self->stopped) {
      self->timer.expires_at(self->armed);
      co_await self->timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
      if (self->stopped) co_return;
      if (error) continue;  // Armed anew, for an earlier time.
      self->armed = Clock::time_point::max();
      self->batch([&] { self->on_time(Clock::now()); });
    }
  }

  void serve_ready() {
    std::array<epoll_event, events_per_batch> events;
    const int count = ::epoll_wait(poll, events.data(), static_cast<int>(events.size()), 0);
    if (count <= 0) return;
    batch([&] {
      const auto now = Clock::now();
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if ((event.data.u64 & listener_bit) != 0) {
          accept_some(event.data.u64 & ~listener_bit, now);
        } else if (Connection* connection = find(event.data.u64)) {
          on_event(*connection, event.events, now);
          flush_dirty(now);
        }
      }
    });
  }

  /// Everything that may end connections runs in a batch; they are destroyed when it is over.
  template <class Work>
  void batch(Work work) {
    in_batch = true;
    work();
    const auto now = Clock::now();
    for (Namespace* space :
         {static_cast<Namespace*>(&native), static_cast<Namespace*>(c10d.get())}) {
      if (const auto next = space->next_deadline(); next && *next <= now) space->tick(now);
    }
    settle(now);
    in_batch = false;
    arm();
  }

  void settle(Clock::time_point now) {
    do {
      flush_dirty(now);
      while (!ended.empty()) {
        const ConnectionId id = ended.back();
        ended.pop_back();
        destroy(id);
      }
    } while (!dirty.empty());
    if (!paused.empty() && !out_of_descriptors && pending_count < pending_max) resume_accepting();
  }

  /// What a call from outside of any batch has queued is sent at once; callbacks come later.
  void send_soon() {
    if (in_batch) return;
    flush_dirty(Clock::now());
    if (ended.empty() || sweep_posted) return;
    sweep_posted = true;
    asio::post(io, [self = shared_from_this()] {
      self->sweep_posted = false;
      if (!self->stopped) self->batch([] {});
    });
  }

  // ---- Time ----

  void arm() {
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

  void on_time(Clock::time_point now) {
    while (!pending.empty() && pending.front().first + hello_timeout <= now) drop_oldest_pending();
    while (!lingering.empty() && lingering.front().first + linger_timeout <= now) {
      if (Connection* connection = find(lingering.front().second)) end(*connection);
      lingering.pop_front();
    }
    if (!paused.empty() && resume_at <= now) resume_accepting();
  }

  // ---- Accepting ----

  void accept_some(std::uint64_t index, Clock::time_point now) {
    const Listener& listener = listeners[index];
    for (int i = 0; i < accepts_per_event; ++i) {
      if (!may_accept(now)) return pause_accepting(index, pending.front().first + pending_slow);
      unique_fd socket(
          ::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
          out_of_descriptors = true;
          pause_accepting(index, now + accept_pause);
        }
        return;
      }
      ++counters.accepted;
      if (listener.unix_socket && !same_user(socket.get())) {
        ++counters.garbage;
        continue;
      }
      Connection& connection = add(std::move(socket), listener.protocols);
      if (listener.protocols.c10d) {
        connection.silent = true;
        ++counters.silent;
      } else {
        make_pending(connection, now);
      }
    }
  }

  bool may_accept(Clock::time_point now) {
    if (pending_count < pending_max) return true;
    while (!pending.empty() && pending_count >= pending_max &&
           pending.front().first + pending_slow <= now) {
      drop_oldest_pending();
    }
    return pending_count < pending_max;
  }

  void make_pending(Connection& connection, Clock::time_point now) {
    connection.pending = true;
    ++pending_count;
    pending.emplace_back(now, connection.id);
  }

  void no_longer_pending(Connection& connection) {
    if (!std::exchange(connection.pending, false)) return;
    --pending_count;
    // The queue is in order of time, and most say HELLO in that order.
    while (!pending.empty()) {
      const Connection* first = find(pending.front().second);
      if (first != nullptr && first->pending) break;
      pending.pop_front();
    }
  }

  void drop_oldest_pending() {
    Connection* connection = find(pending.front().second);
    pending.pop_front();
    if (connection == nullptr || !connection->pending) return;
    ++counters.timed_out;
    end(*connection);
  }

  void pause_accepting(std::uint64_t index, Clock::time_point until) {
    watch_listener(index, EPOLL_CTL_MOD, 0);
    paused.push_back(index);
    resume_at = until;
  }

  void resume_accepting() {
    out_of_descriptors = false;
    for (const std::uint64_t index : std::exchange(paused, {})) {
      watch_listener(index, EPOLL_CTL_MOD, EPOLLIN);
    }
  }

  void watch_listener(std::uint64_t index, int operation, std::uint32_t events) {
    epoll_event event{events, {.u64 = index | listener_bit}};
    if (::epoll_ctl(poll, operation, listeners[index].fd.get(), &event) != 0) {
      throw Error(Errc::internal, "cannot poll a listening socket: " + errno_text(errno));
    }
  }

  // ---- Connections ----

  Connection* find(ConnectionId id) {
    const auto found = connections.find(id);
    return found == connections.end() || found->second->ended ? nullptr : found->second.get();
  }

  Connection& add(unique_fd socket, Protocols protocols) {
    const ConnectionId id = next_id++;
    auto owned = std::make_unique<Connection>(id, std::move(socket), *this);
    Connection& connection = *owned;
    connection.protocols = protocols;
    connections.emplace(id, std::move(owned));
    connection.interest = EPOLLIN;
    epoll_event event{EPOLLIN, {.u64 = id}};
    if (::epoll_ctl(poll, EPOLL_CTL_ADD, connection.socket.get(), &event) != 0) end(connection);
    return connection;
  }

  void set_interest(Connection& connection, std::uint32_t events) {
    if (connection.interest == events) return;
    connection.interest = events;
    epoll_event event{events, {.u64 = connection.id}};
    if (::epoll_ctl(poll, EPOLL_CTL_MOD, connection.socket.get(), &event) != 0) end(connection);
  }

  void on_event(Connection& connection, std::uint32_t events, Clock::time_point now) {
    if ((events & EPOLLOUT) != 0) {
      flush(connection, now);
      if (connection.ended) return;
      if (connection.session && !connection.congested() && !connection.closing()) {
        feed(connection, {}, now);
      }
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || connection.ended) return;
    const ssize_t size =
        ::recv(connection.socket.get(), scratch.data(), scratch.size(), MSG_DONTWAIT);
    if (size > 0) {
      if (!connection.closing()) {
        feed(connection, BytesView(scratch).first(static_cast<std::size_t>(size)), now);
      }
    } else if (size == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      end(connection);
    }
  }

  void feed(Connection& connection, BytesView in, Clock::time_point now) {
    if (!connection.session && !choose_protocol(connection, in.front(), now)) {
      ++counters.garbage;
      return end(connection);
    }
    if (!connection.session->feed(in, now)) {
      ++counters.garbage;
      end(connection);
    }
    connection.paused = connection.congested();
  }

  /// By the first byte, which no two protocols share.
  bool choose_protocol(Connection& connection, std::byte first, Clock::time_point now) {
    if (std::exchange(connection.silent, false)) --counters.silent;
    constexpr auto c10d_last = std::byte{0x08};
    if (first == std::byte{'D'} && connection.protocols.native) {
      if (connection.protocols.c10d) make_pending(connection, now);
      connection.session = native.open(connection.id, connection);
    } else if (first <= c10d_last && connection.protocols.c10d) {
      connection.c10d = true;
      connection.session = c10d->open(connection.id, connection);
    }
    return connection.session != nullptr;
  }

  void flush_dirty(Clock::time_point now) {
    // Ending a session may make others dirty, so the list can grow meanwhile.
    for (std::size_t i = 0; i < dirty.size(); ++i) flush(*dirty[i], now);
    dirty.clear();
  }

  void flush(Connection& connection, Clock::time_point now) {
    if (connection.ended) return;
    switch (connection.flush()) {
      case Connection::Flushed::broken:
        return end(connection);
      case Connection::Flushed::blocked:
        if (connection.overfull()) {
          ++counters.slow;
          return end(connection);
        }
        return set_interest(connection, connection.congested() ? EPOLLOUT : EPOLLIN | EPOLLOUT);
      case Connection::Flushed::all:
        if (connection.closing()) return linger(connection, now);
        // A session that has paused goes on in a later turn, so that it cannot keep the others out.
        return set_interest(connection, connection.paused ? EPOLLOUT : EPOLLIN);
    }
  }

  /// Closing a socket with unread input would reset it, and the peer would miss why it was refused.
  void linger(Connection& connection, Clock::time_point now) {
    if (!connection.session) return;  // Lingers already.
    if (::shutdown(connection.socket.get(), SHUT_WR) != 0) return end(connection);
    no_longer_pending(connection);
    lingering.emplace_back(now, connection.id);
    set_interest(connection, EPOLLIN);
    connection.session.reset();
  }

  void end(Connection& connection) {
    if (std::exchange(connection.ended, true)) return;
    ended.push_back(connection.id);
  }

  void destroy(ConnectionId id) {
    const auto found = connections.find(id);
    const std::unique_ptr<Connection> connection = std::move(found->second);
    connections.erase(found);
    no_longer_pending(*connection);
    if (connection->silent) --counters.silent;
    // Explicitly: a child between fork and exec may hold the socket open.
    ::epoll_ctl(poll, EPOLL_CTL_DEL, connection->socket.get(), nullptr);
    connection->session.reset();
    std::erase(dirty, connection.get());
  }

  void on_dirty(Connection& connection) override { dirty.push_back(&connection); }
  std::vector<Bytes>& spare_buffers() override { return spare; }

  // ---- The native namespace's host: passes on what matters to ours ----

  std::variant<wire::Welcome, Refusal> admit(ConnectionId who, const wire::Hello& hello) override {
    auto verdict = host.admit(who, hello);
    if (Connection* connection = find(who)) no_longer_pending(*connection);
    return verdict;
  }
  void on_message(ConnectionId who, const wire::FrameHeader& header, BytesView payload) override {
    host.on_message(who, header, payload);
  }
  void on_closed(ConnectionId who, bool goodbye) override {
    if (!stopped) host.on_closed(who, goodbye);
  }

  void stop() {
    if (std::exchange(stopped, true)) return;
    for (auto& [id, connection] : connections) connection->session.reset();
    connections.clear();
    dirty.clear();
    listeners.clear();
    boost::system::error_code ignored;  // Closing cannot be helped further.
    ready.close(ignored);
    timer.cancel();
  }

  asio::io_context& io;
  Host& host;
  const Limits limits;
  int poll = -1;  ///< Owned by `ready`.
  asio::posix::stream_descriptor ready;
  asio::steady_timer timer;
  Clock::time_point armed = Clock::time_point::max();

  std::vector<Bytes> spare;
  Bytes scratch = Bytes(read_bytes);
  NativeNamespace native{*this, limits};
  std::unique_ptr<Namespace> c10d = std::make_unique<c10d::Namespace>(limits);
  std::vector<Listener> listeners;
  boost::unordered_flat_map<ConnectionId, std::unique_ptr<Connection>> connections;
  ConnectionId next_id = 1;

  std::vector<Connection*> dirty;
  std::vector<ConnectionId> ended;
  std::deque<std::pair<Clock::time_point, ConnectionId>> pending, lingering;
  std::size_t pending_count = 0;
  std::vector<std::uint64_t> paused;  ///< Listeners.
  Clock::time_point resume_at;
  bool out_of_descriptors = false;
  bool in_batch = false;
  bool sweep_posted = false;
  bool stopped = false;
  Counters counters;
};

Server::Server(asio::io_context& io, Host& host, Limits limits)
    : state_(std::make_shared<State>(io, host, limits)) {
  state_->start();
}

Server::~Server() { state_->stop(); }

void Server::listen(unique_fd listener, Protocols protocols) {
  Listener added{std::move(listener), protocols, false};
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(added.fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(Errc::misuse, "cannot listen on this descriptor: " + errno_text(errno));
  }
  added.unix_socket = address.ss_family == AF_UNIX;
  prepare(added);
  state_->listeners.push_back(std::move(added));
  state_->watch_listener(state_->listeners.size() - 1, EPOLL_CTL_ADD, EPOLLIN);
}

ConnectionId Server::adopt(unique_fd connected) {
  set_nonblocking(connected.get(), true);
  Connection& connection = state_->add(std::move(connected), {true, false});
  connection.session = state_->native.open(connection.id, connection);
  return connection.id;
}

void Server::push(ConnectionId to, wire::Type type, BytesView payload, std::vector<unique_fd> fds) {
  Connection* connection = state_->find(to);
  if (connection == nullptr || connection->closing()) return;
  wire::FrameHeader header{0, type, 0, 0, 0};
  if (fds.empty()) {
    wire::encode_frame(connection->buffer(), header, payload);
  } else {
    header.flags = static_cast<std::uint16_t>(fds.size() << wire::descriptors_shift);
    Bytes frame;
    wire::encode_frame(frame, header, payload);
    connection->send_with(std::move(frame), std::move(fds));
  }
  state_->send_soon();
}

void Server::close(ConnectionId who) {
  if (Connection* connection = state_->find(who)) connection->close();
  state_->send_soon();
}

void Server::renew_c10d() {
  for (auto& [id, connection] : state_->connections) {
    if (!connection->c10d || connection->ended) continue;
    connection->session.reset();
    state_->end(*connection);
  }
  state_->c10d = std::make_unique<c10d::Namespace>(state_->limits);
  state_->send_soon();
}

void Server::stop() { state_->stop(); }

Counters Server::counters() const { return state_->counters; }

}  // namespace dlaunch::store
