#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/store/server/server_state.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {
namespace {

constexpr auto log_pause = std::chrono::seconds(1);

/// Nobody else's machine is at the other end.
bool is_local(int socket, bool trust_loopback) {
  const Address peer = peer_address(socket);
  if (peer.storage.ss_family == AF_UNIX) return true;
  return trust_loopback && peer.is_loopback();
}

/// A name that came from outside, for the log: it cannot begin a line of its own there.
std::string shown(std::string_view name) {
  std::string text = name_in_quotes(name);
  std::replace_if(
      text.begin(), text.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

void Server::State::refuse_tls(Connection& connection) {
  ++counters.garbage;
  wire::encode_preface(connection.buffer());
  connection.close();
}

void Server::State::begin_tls(Connection& connection, Clock::time_point now) {
  if (std::exchange(connection.silent, false)) --counters.silent;
  if (!connection.pending) make_pending(connection, now);
  connection.secure(tls->accept());
}

bool Server::State::unseal(Connection& connection, BytesView in, Clock::time_point now) {
  switch (connection.unseal(in, plain)) {
    case TlsChannel::Fed::open:
      return true;
    case TlsChannel::Fed::ended:
      end(connection);
      return false;
    case TlsChannel::Fed::broken:
      break;
  }
  not_authenticated(connection, connection.tls().reason());
  // The alert is still sent. Messages heard before it do not count any more.
  connection.session.reset();
  connection.close();
  flush(connection, now);
  return false;
}

std::optional<Host::Refusal> Server::State::unproven(const Connection& connection,
                                                     const wire::Hello& hello) {
  if (!connection.secured()) {
    if (!tls || is_local(connection.socket.get(), secret.trust_loopback)) return std::nullopt;
    not_authenticated(connection, "no secret was given");
    return Refusal{Errc::unauthenticated,
                   "it asks for the job's secret, and none was given: --secret-file FILE"};
  }
  if (hello.job == connection.tls().identity()) return std::nullopt;
  not_authenticated(connection, "the secret of the job " + shown(connection.tls().identity()) +
                                    " was given for the job " + shown(hello.job));
  return Refusal{Errc::unauthenticated, "wrong secret, or no such job here"};
}

/// A client that floods us with bad secrets shall not flood the log.
void Server::State::not_authenticated(const Connection& connection, const std::string& why) {
  ++counters.unauthenticated;
  if (!secret.log) return;
  const auto now = Clock::now();
  if (refusal_logged != Clock::time_point{} && now - refusal_logged < log_pause) {
    ++refusals_unlogged;
    return;
  }
  refusal_logged = now;
  const auto before = std::exchange(refusals_unlogged, 0);
  secret.log("refused " + peer_address(connection.socket.get()).to_string() +
             ", which did not prove a job's secret: " + why +
             (before == 0 ? std::string() : " (and " + std::to_string(before) + " before)"));
}

}  // namespace dlaunch::store
