#include "runtime/base/os/socket.hpp"
#include "runtime/base/phrases.hpp"
#include "runtime/base/text/control.hpp"
#include "runtime/store/server/server_state.hpp"

#include <algorithm>
#include <utility>

namespace dlaunch::store {
namespace {

/// Whether the other end is on this machine.
bool is_local(int socket, bool trust_loopback) {
  const Address peer = peer_address(socket);
  if (peer.storage.ss_family == AF_UNIX) return true;
  return trust_loopback && peer.is_loopback();
}

/// A name that came from outside, for the log: it cannot begin a line of its own there.
std::string shown(std::string_view name) { return without_controls(name_in_quotes(name)); }

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
  connection.asked = secret;
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
  const ServerChannel& channel = connection.tls();
  if (channel.trouble() == TlsChannel::Trouble::no_memory) {
    failed(&connection, channel.reason().c_str());
    return false;
  }
  if (channel.trouble() == TlsChannel::Trouble::unproven) {
    not_authenticated(connection, RefusalKind::wrong_secret, channel.reason());
  } else {
    ++counters.unauthenticated;
    tell_unproven(RefusalKind::garbled, connection,
                  ", whose TLS makes no sense, or was changed on the way: " + channel.reason());
  }
  // The alert is still sent. Messages that came with the broken bytes do not count.
  connection.session.reset();
  connection.close();
  flush(connection, now);
  return false;
}

std::optional<Host::Refusal> Server::State::unproven(Connection& connection,
                                                     const wire::Hello& hello) {
  if (!connection.secured()) {
    if (!connection.unwelcome.empty()) {
      ++counters.unauthenticated;
      if (hear_unproven) hear_unproven(RefusalKind::other_user, "refused: " + connection.unwelcome);
      return Refusal{Errc::unauthenticated, connection.unwelcome};
    }
    if (!tls || is_local(connection.socket.get(), secret->trust_loopback)) return std::nullopt;
    const bool near = peer_address(connection.socket.get()).is_loopback();
    not_authenticated(connection, RefusalKind::no_secret,
                      near ? "no secret was given, for which this host's own are asked, too "
                             "(trust-loopback of a dlaunchd lets them in without)"
                           : "no secret was given");
    return Refusal{Errc::unauthenticated,
                   std::string("it asks for the job's secret, and none was given: "
                               "--secret-file FILE") +
                       (near ? " (from its own host as well; trust-loopback of a dlaunchd lets "
                               "that in without)"
                             : "")};
  }
  const ServerKey& key = connection.asked->keys.at(connection.tls().key());
  if (!key.refusal.empty()) {
    not_authenticated(
        connection, RefusalKind::withdrawn_secret,
        "that of " + shown(connection.tls().identity()) + " is not accepted any more");
    return Refusal{Errc::unauthenticated, key.refusal};
  }
  if (hello.job == connection.tls().identity()) {
    const std::string role(name_of(key.role));
    // A connection without a session is a tool's.
    if (key.role != Role::node && hello.session != 0) {
      ++counters.unauthenticated;
      tell_unproven(
          RefusalKind::beyond_role, connection,
          ", which came to join " + shown(hello.job) + " with a secret for the role " + role);
      return Refusal{Errc::unauthenticated,
                     "its secret is for the role " + role +
                         ", and to join a job takes the role node: give the nodes' secret"};
    }
    connection.proved = key.number;
    native.limit(connection.id, key.role);
    return std::nullopt;
  }
  not_authenticated(connection, RefusalKind::other_job,
                    "the secret of the job " + shown(connection.tls().identity()) +
                        " was given for the job " + shown(hello.job));
  return Refusal{Errc::unauthenticated, "wrong secret, or no such job here"};
}

void Server::State::not_authenticated(const Connection& connection, RefusalKind kind,
                                      const std::string& why) {
  ++counters.unauthenticated;
  tell_unproven(kind, connection, ", which did not prove a job's secret: " + why);
}

void Server::State::tell_unproven(RefusalKind kind, const Connection& connection,
                                  const std::string& what) {
  if (!hear_unproven) return;
  hear_unproven(kind, "refused " + peer_address(connection.socket.get()).to_string() + what);
}

}  // namespace dlaunch::store
