#include "runtime/store/server/server.hpp"

#include "runtime/base/os/socket.hpp"
#include "runtime/store/server/server_state.hpp"

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>

namespace dlaunch::store {
namespace {

void set_option(int fd, int level, int name, int value) {
  if (::setsockopt(fd, level, name, &value, sizeof value) != 0) {
    throw Error(Errc::internal, "cannot prepare a listening socket: " + errno_text(errno));
  }
}

/// A connection whose other end vanished without a word is closed after a minute at the latest.
constexpr int idle_seconds = 30, probe_seconds = 10, probes_max = 3;
constexpr int unacknowledged_ms_max = 60'000;

/// Accepted sockets inherit these options, which saves system calls for each.
void prepare(const Listener& listener) {
  set_nonblocking(listener.fd.get(), true);
  if (listener.unix_socket) return;
  set_option(listener.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(listener.fd.get(), SOL_SOCKET, SO_KEEPALIVE, 1);
  set_tcp_option(listener.fd.get(), TCP_KEEPIDLE, idle_seconds);
  set_tcp_option(listener.fd.get(), TCP_KEEPINTVL, probe_seconds);
  set_tcp_option(listener.fd.get(), TCP_KEEPCNT, probes_max);
  set_tcp_option(listener.fd.get(), TCP_USER_TIMEOUT, unacknowledged_ms_max);
  set_tcp_option(listener.fd.get(), tcp_rto_max_ms, resend_pause_ms_max);
}

}  // namespace

Server::Server(asio::io_context& io, Host& host, Limits limits)
    : state_(std::make_shared<State>(io, host, limits)) {
  state_->start();
}

Server::~Server() { state_->stop(); }

void Server::listen(unique_fd listener, Protocols protocols, std::optional<SocketAccess> access) {
  Listener added{std::move(listener), protocols, false, access};
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

void Server::ask_for(ServerSecret secret) {
  std::vector<KeyOfJob> keys;
  for (const ServerKey& key : secret.keys) keys.push_back(key.key_of);
  state_->tls.emplace(keys);
  state_->secret = std::make_shared<const ServerSecret>(std::move(secret));
}

std::uint64_t Server::proved_by(ConnectionId who) const {
  const Connection* connection = state_->find(who);
  return connection == nullptr ? 0 : connection->proved;
}

std::size_t Server::connections_by(std::uint64_t key) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      state_->connections, [&](const auto& each) { return each.second->proved == key; }));
}

void Server::on_unproven(HearUnproven hear) { state_->hear_unproven = std::move(hear); }

std::string slow_reader_text(const std::string& name, const std::string& peer) {
  return name + " at " + peer + " does not read: its connection is dropped, with more than " +
         std::to_string(Connection::queued_bytes_max >> 20) + " MiB waiting for it";
}

void Server::on_slow_reader(HearSlow hear) { state_->hear_slow = std::move(hear); }

void Server::on_refused_c10d(HearRefused hear) { state_->hear_refused = std::move(hear); }

void Server::limit(const ConnectionLimits& limits) { state_->connection_limits = limits; }

void Server::on_failed(HearFailed hear) { state_->hear_failed = std::move(hear); }

void Server::on_no_room(MakeRoom choose) { state_->choose_to_go = std::move(choose); }

void Server::on_full(HearFull hear) { state_->hear_full = std::move(hear); }

std::vector<Server::C10dWaiting> Server::c10d_waiting() const {
  std::vector<C10dWaiting> all;
  for (auto& what : state_->c10d->waiting()) {
    const Connection* connection = state_->find(what.client);
    if (connection == nullptr) continue;
    const int socket = connection->socket.get();
    all.push_back({peer_address(socket), local_address(socket), std::move(what)});
  }
  return all;
}

std::string other_version_text(const std::string& peer, std::uint32_t theirs) {
  return "a program at " + peer + " speaks version " + std::to_string(theirs) +
         " of the protocol, this is version " + std::to_string(wire::version) +
         ": it was sent away; use the same dlaunch everywhere";
}

std::string Server::peer_of(ConnectionId who) const {
  const Connection* connection = state_->find(who);
  return connection == nullptr ? "" : peer_address(connection->socket.get()).to_string();
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
  try {
    if (fds.empty()) {
      wire::encode_frame(connection->buffer(), header, payload);
    } else {
      header.flags = static_cast<std::uint16_t>(fds.size() << wire::descriptors_shift);
      Bytes frame;
      wire::encode_frame(frame, header, payload);
      connection->send_with(std::move(frame), std::move(fds));
    }
  } catch (const std::exception&) {  // It ends alone: others may be told the same.
    connection->fail();
  }
  state_->send_soon();
}

void Server::push_late(ConnectionId to, std::shared_ptr<const LateMessage> message) {
  Connection* connection = state_->find(to);
  if (connection == nullptr || connection->closing()) return;
  try {
    connection->say_late(std::move(message));
  } catch (const std::exception&) {
    connection->fail();
  }
  state_->send_soon();
}

void Server::push_ahead(ConnectionId to, wire::Type type) {
  Connection* connection = state_->find(to);
  if (connection == nullptr || connection->closing()) return;
  wire::encode_frame(connection->ahead(), {0, type, 0, 0, 0}, {});
  state_->send_soon();
}

void Server::forward_to(Backend& backend) {
  constexpr std::size_t answers_bytes_max = 256u << 20;
  state_->native.forward_to(&backend);
  state_->queued_bytes_max = answers_bytes_max;
}

void Server::answer(ConnectionId to, const wire::FrameHeader& header, BytesView payload,
                    bool remember) {
  state_->native.answer(to, header, payload, remember);
  state_->send_soon();
}

SpaceId Server::add_space(std::uint64_t epoch) { return add_space(epoch, state_->limits); }

SpaceId Server::add_space(std::uint64_t epoch, const Limits& limits) {
  return state_->native.add(epoch, limits);
}

SpaceId Server::add_space(std::uint64_t epoch, const Limits& limits, KeptSpace kept) {
  return state_->native.add(epoch, limits, std::move(kept), Clock::now());
}

void Server::hold_for(Commits& commits) {
  state_->commits = &commits;
  commits.on_durable([state = std::weak_ptr(state_)] {
    if (const auto self = state.lock(); self && !self->stopped) self->on_durable();
  });
}

void Server::fail(ConnectionId who) {
  if (Connection* connection = state_->find(who)) connection->fail();
  state_->send_soon();
}

void Server::speak_freely(ConnectionId who, bool freely) {
  if (Connection* connection = state_->find(who)) connection->free = freely;
}

void Server::carry_out(const std::function<void()>& work) {
  std::exception_ptr failure;
  state_->batch([&] {
    try {
      work();
    } catch (const std::exception&) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

void Server::go_on_in_turns(const std::string& job) {
  state_->turns.add_work(state_->turns.job(job, state_->last_change_gone));
  if (!state_->in_batch) state_->go_on_soon();
}

void Server::count_as_stranger(ConnectionId who, bool is) {
  if (Connection* connection = state_->find(who)) connection->stranger = is;
}

void Server::drop_space(SpaceId space, std::string_view why) {
  state_->native.drop(space, why);
  state_->send_soon();
}

bool Server::seat(ConnectionId who, SpaceId space) {
  const bool seated = state_->native.seat(who, space);
  state_->send_soon();
  return seated;
}

void Server::lose(Contributors lost, int world, std::string_view why, SpaceId space) {
  NativeSpace* native = state_->native.find(space);
  if (native == nullptr) return;
  native->carry_out([&] { native->values.lose(lost, world, why, native->effects); });
  state_->send_soon();
}

Server::Usage Server::usage(SpaceId space) const {
  const NativeSpace* native = state_->native.find(space);
  return native == nullptr ? Usage{} : Usage{native->values.size(), native->values.bytes()};
}

std::optional<Clock::time_point> Server::last_heard(ConnectionId who) const {
  const Connection* connection = state_->find(who);
  if (connection == nullptr) return std::nullopt;
  // What it says while it waits for its turn is not read, but it does say something; or it may, and
  // is not listened to, since its last turn ended before its work.
  const bool may_speak =
      connection->due && (connection->unfinished || (connection->events & EPOLLIN) != 0);
  return may_speak ? Clock::now() : connection->heard;
}

void Server::restrict_c10d(std::optional<std::vector<std::string>> hosts) {
  state_->c10d_hosts.reset();
  if (hosts) state_->c10d_hosts.emplace(hosts->begin(), hosts->end());
  for (auto& [id, connection] : state_->connections) {
    if (connection->ended || !connection->protocols.c10d) continue;
    // It speaks the native protocol.
    if (connection->session != nullptr && !connection->c10d) continue;
    if (state_->admits_c10d(connection->socket.get())) continue;
    ++state_->counters.strangers;
    state_->end(*connection);
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
  state_->begin_c10d();
  state_->send_soon();
}

void Server::stop() { state_->stop(); }

Counters Server::counters() const { return state_->counters; }

}  // namespace dlaunch::store
