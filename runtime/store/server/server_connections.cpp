#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server_state.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <sys/epoll.h>
#include <sys/socket.h>

namespace dlaunch::store {
namespace {

/// How long a stranger is served at a stretch: a newcomer has to wait for a crowd of them.
constexpr auto stranger_time = std::chrono::microseconds(50);

/// A PyTorch client is asked to pause when some of its answers wait. But the answer that it gets
/// meanwhile may be large, and so may be its requests behind a wait.
constexpr std::size_t c10d_queued_bytes_max =
    3 * c10d::value_bytes_max + Connection::queued_bytes_max;

}  // namespace

Connection* Server::State::find(ConnectionId id) {
  const auto found = connections.find(id);
  return found == connections.end() || found->second->ended ? nullptr : found->second.get();
}

Connection& Server::State::add(unique_fd socket, Protocols protocols) {
  const ConnectionId id = next_id++;
  auto owned = std::make_unique<Connection>(id, std::move(socket), *this);
  Connection& connection = *owned;
  connection.protocols = protocols;
  connection.job = jobless;
  connection.charge = MemoryCharge(limits.memory);
  // Ending a connection, or sending to it, must not fail for want of memory.
  const std::size_t count = connections.size() + 1;
  if (dirty.capacity() < count) dirty.reserve(2 * count);
  if (ended.capacity() < count) ended.reserve(2 * count);
  connections.emplace(id, std::move(owned));
  watch(connection, EPOLL_CTL_ADD, EPOLLIN);
  return connection;
}

void Server::State::watch(Connection& connection, int operation, std::uint32_t events) {
  connection.wanted = events;
  const std::uint32_t end = (events & EPOLLIN) != 0 ? std::uint32_t{EPOLLRDHUP} : 0;
  epoll_event event{events | end | EPOLLET, {.u64 = connection.id}};
  if (::epoll_ctl(poll, operation, connection.socket.get(), &event) != 0) this->end(connection);
}

void Server::State::set_interest(Connection& connection, std::uint32_t events) {
  if (connection.unfinished) events &= ~std::uint32_t{EPOLLIN};
  if (connection.wanted != events) watch(connection, EPOLL_CTL_MOD, events);
}

void Server::State::come_again(Connection& connection, std::uint32_t events) {
  connection.events |= events;
  make_due(connection);
}

void Server::State::serve(Connection& connection, Clock::time_point now) {
  const std::uint32_t events = std::exchange(connection.events, 0);
  if (!std::exchange(connection.unfinished, false)) return on_event(connection, events, now);
  if ((events & EPOLLOUT) != 0) flush(connection, now);
  if (connection.ended) return;
  if (connection.session && !connection.closing()) feed(connection, {}, now);
  if (connection.ended || connection.unfinished) return;
  if (connection.lingers) return set_interest(connection, EPOLLIN);
  flush(connection, now);
}

void Server::State::on_event(Connection& connection, std::uint32_t events, Clock::time_point now) {
  if ((events & EPOLLOUT) != 0) {
    flush(connection, now);
    if (connection.ended) return;
    const bool idle = connection.session && !connection.congested() && !connection.closing();
    if (idle) feed(connection, {}, now);
  }
  // What is not wanted now, epoll tells again once it is.
  const std::uint32_t unread = events & (connection.wanted | EPOLLHUP | EPOLLERR);
  if ((unread & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0 || connection.ended) return;
  // Its last bytes are handled before its end.
  if (connection.unfinished) return;
  const ssize_t size = ::recv(connection.socket.get(), scratch.get(), read_bytes, MSG_DONTWAIT);
  if (size > 0) {
    connection.heard = now;
    // epoll tells each news once: not again of the end behind these bytes, nor of bytes that are
    // left. It is asked for those at the next look at the sockets, so that one who says much is
    // served no more often than the others.
    const std::uint32_t over = events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP);
    if (over != 0) {
      come_again(connection, EPOLLIN | over);
    } else if (static_cast<std::size_t>(size) == read_bytes) {
      watch(connection, EPOLL_CTL_MOD, connection.wanted);
    }
    if (!connection.closing()) {
      feed(connection, BytesView(scratch.get(), static_cast<std::size_t>(size)), now);
    }
  } else if (size < 0 && errno == EINTR) {
    come_again(connection, events);
  } else if (size == 0 || !would_block(errno)) {
    end(connection);
  }
}

void Server::State::feed(Connection& connection, BytesView in, Clock::time_point now) {
  if (!connection.session && !connection.secured() && in.front() == TlsChannel::first_byte &&
      connection.protocols.native) {
    if (!tls) return refuse_tls(connection);
    begin_tls(connection, now);
  }
  if (connection.secured() && !in.empty()) {
    plain.clear();
    if (!unseal(connection, in, now) || plain.empty()) return;
    in = plain;
  }
  if (!connection.session && !choose_protocol(connection, in.front(), now)) {
    ++counters.garbage;
    return end(connection);
  }
  connection.begin_turn(connection.stranger ? std::min(turn_end, Clock::now() + stranger_time)
                                            : turn_end);
  const bool spoken = connection.session->feed(in, now);
  const bool over = connection.end_turn();
  if (!spoken) {
    ++counters.garbage;
    end(connection);
  }
  connection.paused = connection.congested();
  charge(connection);
  if (!over || connection.paused || connection.ended || connection.unfinished) return;
  connection.unfinished = true;
  make_due(connection);
  set_interest(connection, connection.wanted);
}

void Server::State::charge(Connection& connection) {
  if (connection.count_held() || connection.ended) return;
  ++counters.greedy;
  if (hear_failed) {
    hear_failed(connection.id, "the memory is full, and " +
                                   std::to_string(connection.charge.bytes()) +
                                   " bytes are held for it alone");
  }
  end(connection);
}

bool Server::State::choose_protocol(Connection& connection, std::byte first,
                                    Clock::time_point now) {
  if (std::exchange(connection.silent, false)) --counters.silent;
  constexpr auto c10d_last = std::byte{0x08};
  if (first == std::byte{'D'} && connection.protocols.native) {
    if (connection.protocols.c10d && !connection.pending) make_pending(connection, now);
    connection.session = native.open(connection.id, connection);
  } else if (first <= c10d_last && connection.protocols.c10d && !connection.secured()) {
    connection.c10d = true;
    connection.session = c10d->open(connection.id, connection);
  }
  return connection.session != nullptr;
}

/// An empty namespace.
void Server::State::begin_c10d() {
  c10d = std::make_unique<c10d::Namespace>(limits);
  c10d->hear_refusal = [this](ConnectionId client, const std::string& why) {
    const Connection* connection = find(client);
    if (connection == nullptr || !hear_refused) return;
    const int fd = connection->socket.get();
    hear_refused(peer_address(fd), local_address(fd), why);
  };
}

void Server::State::flush_dirty(Clock::time_point now, Clock::time_point end) {
  // Changes that could not be sealed now are sealed later, and bytes that were said about them wait
  // until then.
  if (commits != nullptr) guarded(nullptr, [&] { commits->seal(); });
  // Ending a session may make others dirty, so the list can grow meanwhile.
  for (std::size_t i = 0; i < dirty.size(); ++i) {
    Connection& connection = *dirty[i];
    guarded(&connection, [&] {
      // A round that closes has something for thousands.
      const bool later = i > 0 && end != Clock::time_point::max() && Clock::now() >= end;
      later ? send_in_turn(connection) : flush(connection, now);
      charge(connection);
    });
  }
  dirty.clear();
}

/// What it is told now waits for the changes of now, written or not.
void Server::State::send_in_turn(Connection& connection) {
  if (connection.ended) return;
  if (connection.has_late()) connection.late_change = told_change(connection);
  hold_back(connection);
  come_again(connection, EPOLLOUT);
}

void Server::State::note_changes(const std::shared_ptr<Turns::Job>& of) {
  if (commits == nullptr || commits->recorded() == noted_change) return;
  noted_change = commits->recorded();
  const bool common = of == nullptr || of == jobless;
  (common ? common_change : of->last_change) = noted_change;
  turn_changes = !common;
}

/// Jobs tell nothing of each other, so that one need not wait for another's changes, unless it
/// hears in the other's turn of what that turn has changed.
std::uint64_t Server::State::told_change(const Connection& connection) {
  note_changes(turn);
  if (turn_changes && turn != nullptr && connection.job != turn) return noted_change;
  // Even what tells of no change waits while nothing may leave.
  const std::uint64_t first = std::min<std::uint64_t>(noted_change, 1);
  return std::max({first, common_change, connection.job->last_change});
}

void Server::State::hold_back(Connection& connection) {
  if (commits == nullptr) return;
  const std::uint64_t durable = commits->durable();
  const bool waits = !connection.free || durable == 0;
  const std::uint64_t late = connection.late_change;
  connection.hold(waits ? std::max(late, told_change(connection)) : 0, durable);
}

void Server::State::flush(Connection& connection, Clock::time_point now) {
  if (connection.ended) return;
  if (connection.deaf) return connection.discard();
  if (connection.greedy()) return charge(connection);
  if (connection.failed()) return failed(&connection, "its answer could not be made");
  connection.write_late();
  hold_back(connection);
  const auto flushed = connection.flush();
  const std::size_t limit = connection.c10d ? c10d_queued_bytes_max : queued_bytes_max;
  const bool slow = flushed == Connection::Flushed::blocked && connection.overfull(limit);
  if (slow || connection.overrun()) {
    ++counters.slow;
    if (hear_slow) hear_slow(connection.id, peer_address(connection.socket.get()).to_string());
    return end(connection);
  }
  switch (flushed) {
    case Connection::Flushed::broken:
      if (connection.secured() && connection.tls().trouble() == TlsChannel::Trouble::no_memory) {
        return failed(&connection, connection.tls().reason().c_str());
      }
      return hear_out(connection, now);
    case Connection::Flushed::blocked:
      return set_interest(connection, connection.congested() ? EPOLLOUT : EPOLLIN | EPOLLOUT);
    case Connection::Flushed::held:
      if (!std::exchange(connection.held, true)) held.push_back(connection.id);
      return set_interest(connection, connection.congested() ? 0U : std::uint32_t{EPOLLIN});
    case Connection::Flushed::all:
      if (connection.closing()) return linger(connection, now);
      if (!connection.paused) return set_interest(connection, EPOLLIN);
      // A session that has paused goes on in a later turn, so that it cannot keep the others out.
      set_interest(connection, 0);
      return come_again(connection, EPOLLOUT);
  }
}

/// What was held goes out in turns, too: a job that reads much, beside one that writes, has many
/// answers that wait for the other's changes.
void Server::State::on_durable() {
  batch([this] {
    for (const ConnectionId id : std::exchange(held, {})) {
      Connection* connection = find(id);
      if (connection == nullptr) continue;
      connection->held = false;
      guarded(connection, [&] { come_again(*connection, EPOLLOUT); });
    }
    turns.call_back();
    take_turns();
  });
}

/// The peer is gone, or reads no more. Its earlier bytes may still lie in the socket, such as the
/// last report of a worker that fails while it is being told of another failure.
void Server::State::hear_out(Connection& connection, Clock::time_point now) {
  if (std::exchange(connection.deaf, true)) return;
  connection.discard();
  if (!std::exchange(connection.lingers, true)) lingering.emplace_back(now, connection.id);
  set_interest(connection, EPOLLIN);
}

void Server::State::linger(Connection& connection, Clock::time_point now) {
  if (std::exchange(connection.lingers, true)) return;
  if (::shutdown(connection.socket.get(), SHUT_WR) != 0) return end(connection);
  no_longer_pending(connection);
  lingering.emplace_back(now, connection.id);
  set_interest(connection, EPOLLIN);
  connection.session.reset();
}

void Server::State::end(Connection& connection) {
  if (std::exchange(connection.ended, true)) return;
  ended.push_back(connection.id);
}

void Server::State::destroy(ConnectionId id) {
  const auto found = connections.find(id);
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections.erase(found);
  no_longer_pending(*connection);
  last_change_gone = std::max(last_change_gone, connection->job->last_change);
  if (connection->silent) --counters.silent;
  if (const auto peer = per_peer.find(connection->peer); peer != per_peer.end()) {
    if (--peer->second == 0) per_peer.erase(peer);
  }
  // Explicitly: a child between fork and exec may hold the socket open.
  ::epoll_ctl(poll, EPOLL_CTL_DEL, connection->socket.get(), nullptr);
  connection->session.reset();
  std::erase(dirty, connection.get());
}

std::variant<wire::Welcome, Host::Refusal> Server::State::admit(ConnectionId who,
                                                                const wire::Hello& hello) {
  Connection* connection = find(who);
  if (connection != nullptr) {
    if (auto refusal = unproven(*connection, hello)) return *std::move(refusal);
  }
  auto verdict = host.admit(who, hello);
  connection = find(who);  // The host may have closed it.
  if (connection == nullptr) return verdict;
  no_longer_pending(*connection);
  if (const auto* welcome = std::get_if<wire::Welcome>(&verdict)) {
    connection->job = turns.job(welcome->job, last_change_gone);
    if (turn == jobless) turn = connection->job;  // What it says next is the job's already.
  }
  return verdict;
}

void Server::State::on_message(ConnectionId who, const wire::FrameHeader& header,
                               BytesView payload) {
  host.on_message(who, header, payload);
}

void Server::State::on_other_version(ConnectionId who, std::uint32_t theirs) {
  host.on_other_version(who, theirs);
}

void Server::State::on_closed(ConnectionId who, bool goodbye) {
  if (!stopped) host.on_closed(who, goodbye);
}

}  // namespace dlaunch::store
