#pragma once

#include "runtime/base/os/peer_user.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/store/c10d/waiting.hpp"
#include "runtime/store/core/key_values.hpp"
#include "runtime/store/native/backend.hpp"
#include "runtime/store/native/host.hpp"
#include "runtime/store/native/roles.hpp"
#include "runtime/store/native/space_journal.hpp"
#include "runtime/store/protocol/wire.hpp"
#include "runtime/store/server/commits.hpp"
#include "runtime/store/server/late_message.hpp"
#include "runtime/store/tls/tls.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::store {

struct Counters {
  std::uint64_t accepted = 0;
  std::uint64_t garbage = 0;    ///< Closed for an impossible first byte, frame or length.
  std::uint64_t slow = 0;       ///< Dropped because they did not read.
  std::uint64_t timed_out = 0;  ///< Said no HELLO in time.
  std::uint64_t strangers = 0;  ///< Came from an address to which PyTorch's store is closed.
  /// Did not prove the required secret: gave a wrong one, none, or another job's.
  std::uint64_t unauthenticated = 0;
  std::uint64_t silent = 0;   ///< On a c10d-capable port, connected and mute; never cut.
  std::uint64_t failed = 0;   ///< Ended because serving them failed: no memory, or a bug.
  std::uint64_t greedy = 0;   ///< Ended because the memory was full, and they held much of it.
  std::uint64_t crowded = 0;  ///< Turned away: their address had as many as it may.
};

/// The limits of connections.
struct ConnectionLimits {
  std::size_t all = ~std::size_t{0};   ///< More wait to be accepted.
  std::size_t peer = ~std::size_t{0};  ///< From one address beyond this host's own sockets.
};

/// Why a connection was turned away.
enum class RefusalKind {
  no_secret,         ///< A secret is asked for, and none was given.
  wrong_secret,      ///< It fits no key that is accepted.
  withdrawn_secret,  ///< It is known, and not accepted any more.
  other_job,         ///< It is that of another job than HELLO names.
  beyond_role,       ///< It joins a job with a secret that is not for nodes.
  garbled,           ///< Its TLS makes no sense, or was changed on the way.
  other_user,        ///< A unix socket is not for its user.
  other_version,     ///< It speaks another version of the protocol.
  crowded_job,       ///< The job that HELLO names has as many connections as it may.
  bad_hello,         ///< The host does not admit HELLO for another reason.
};
constexpr std::size_t refusal_kinds = 10;

/// A key that is asked for of every job.
struct ServerKey {
  std::uint64_t number = 1;  ///< Its name here; not 0.
  KeyOfJob key_of;
  /// Why connections that prove it are refused all the same; empty: they are let in.
  std::string refusal = {};
  Role role = Role::node;  ///< The role of connections that prove it.
};

/// With a secret, a connection by TCP has to prove a key of the job that its HELLO names, by TLS
/// 1.3; PyTorch's protocol cannot, and is not asked to.
struct ServerSecret {
  std::vector<ServerKey> keys;  ///< At least one; they are tried in this order.
  /// Plain connections from this host's loopback are let in, as those on a unix socket are. Not on
  /// a host with users who are not to be trusted.
  bool trust_loopback = false;
};

/// "node b at 10.0.0.2:40112 does not read: its connection is dropped, with 8 MiB waiting for it".
std::string slow_reader_text(const std::string& name, const std::string& peer);

/// Serves native namespaces, one or many, and one c10d namespace per attempt, on one thread: that
/// of `io`. Every queue has a limit; a slow reader is dropped, by name, and harms nobody else.
class Server {
 public:
  Server(boost::asio::io_context& io, Host& host, Limits limits = {});
  ~Server();

  /// Accepts on a bound and listening socket (TCP or unix). By unix sockets our own user and root
  /// come in without a secret; `access` names others, and those that it does not admit are told so.
  void listen(unique_fd listener, Protocols protocols,
              std::optional<SocketAccess> access = std::nullopt);
  /// A later call holds for later connections; present ones stay.
  void ask_for(ServerSecret secret);
  /// The number of the key that a connection has proved; 0: of none.
  std::uint64_t proved_by(ConnectionId who) const;
  /// How many connections have proved the key of this number.
  std::size_t connections_by(std::uint64_t key) const;
  /// Hears of each connection that is turned away for lack of a secret. Called like `hear` of
  /// on_slow_reader.
  using HearUnproven = std::function<void(RefusalKind kind, const std::string& sentence)>;
  void on_unproven(HearUnproven hear);
  /// Hears of each connection that is dropped because it does not read, and of its address. Called
  /// from within the server's loop; must not call the server. Set before anybody connects.
  using HearSlow = std::function<void(ConnectionId who, const std::string& peer)>;
  void on_slow_reader(HearSlow hear);
  /// Likewise, of each PyTorch client whose connection is closed for what it asked, and why: its
  /// protocol has no words for it. With both addresses of the connection.
  using HearRefused =
      std::function<void(const Address& peer, const Address& own, const std::string& why)>;
  void on_refused_c10d(HearRefused hear);
  /// To be called before anybody connects.
  void limit(const ConnectionLimits& limits);
  /// Hears of each connection that is ended because serving it failed, and why, and of each that is
  /// ended because the memory is full. Called as `hear` of on_slow_reader is.
  using HearFailed = std::function<void(ConnectionId who, const std::string& sentence)>;
  void on_failed(HearFailed hear);
  /// Asked for a connection to let go when there is no room for another; 0: none. Called as above.
  using MakeRoom = std::function<ConnectionId(Clock::time_point now)>;
  void on_no_room(MakeRoom choose);
  /// Hears that a newcomer waits since there is no room for another connection, and why; again each
  /// time that room was looked for in vain. Called as above.
  using HearFull = std::function<void(const std::string& sentence)>;
  void on_full(HearFull hear);
  /// A PyTorch client that waits, and both addresses of its connection.
  struct C10dWaiting {
    Address peer, own;
    c10d::Waiting what;
  };
  /// The waiting clients of this attempt's namespace, in the order of their coming.
  std::vector<C10dWaiting> c10d_waiting() const;
  /// Numeric address of the other end; "" if there is no such connection.
  std::string peer_of(ConnectionId who) const;
  /// Serves a connected socket that speaks the native protocol: a worker's control socket.
  /// Returns the number by which the host will hear of it.
  ConnectionId adopt(unique_fd connected);
  /// Pushes a message nobody asked for, with descriptors on a unix socket.
  void push(ConnectionId to, wire::Type type, BytesView payload, std::vector<unique_fd> fds = {});
  /// The same, of a message that is made in the connection's turn where it has to wait for one.
  void push_late(ConnectionId to, std::shared_ptr<const LateMessage> message);
  /// Pushes a message without a payload that tells nothing that was recorded: it passes others that
  /// wait for changes to be durable.
  void push_ahead(ConnectionId to, wire::Type type);

  /// From now on the backend carries out native store requests, in place of namespaces here. To be
  /// called before anyone connects; the backend outlives the server. A client may ask for much at
  /// once and get it at once, so up to 256 MiB of answers may queue for a connection.
  void forward_to(Backend& backend);
  /// The backend's answer to a request of this connection's; `remember`: to a change.
  void answer(ConnectionId to, const wire::FrameHeader& header, BytesView payload, bool remember);

  /// Adds a native namespace, which answers with this epoch; a request that names another epoch is
  /// refused. Unless it is given limits of its own it has the server's.
  SpaceId add_space(std::uint64_t epoch);
  SpaceId add_space(std::uint64_t epoch, const Limits& limits);
  /// The same, of one that outlives the server where `kept` has a journal.
  SpaceId add_space(std::uint64_t epoch, const Limits& limits, KeptSpace kept);
  /// From now on each message waits until everything recorded before it is durable. To be called
  /// before anybody connects; `commits` outlives the server.
  void hold_for(Commits& commits);
  /// Ends the connection, for which something has failed; what it was told may be incomplete.
  void fail(ConnectionId who);
  /// Carries out what others than connections cause, such as the end of a lease, and sends at its
  /// end what it says; in turns where that is much.
  void carry_out(const std::function<void()>& work);
  /// Has Host::on_turn called in the job's turns until it says that nothing is left. Before that no
  /// connection of the job is served, save for those that count as strangers.
  void go_on_in_turns(const std::string& job);
  /// Whether strangers, who share one turn whatever jobs they name, have theirs with this
  /// connection, in place of its job. At first one that is welcomed is none of them.
  void count_as_stranger(ConnectionId who, bool is);
  /// Whether what the connection is told from now on depends on nothing that was recorded: then it
  /// does not wait. At first it may.
  void speak_freely(ConnectionId who, bool freely);
  /// Clients that sit in it sit nowhere then; their waits are refused with Errc::aborted and `why`.
  void drop_space(SpaceId space, std::string_view why);
  /// The connection's store requests go there from now on; to no_space: are refused. Its waits
  /// where it sat are refused with Errc::aborted. False where one of them is gone.
  bool seat(ConnectionId who, SpaceId space);
  /// These will not come any more: the namespace's aggregates of `world` contributors that lack one
  /// of them are refused with Errc::peer_lost, "rank 3 " and `why`.
  void lose(Contributors lost, int world, std::string_view why, SpaceId space = first_space);
  struct Usage {
    std::size_t keys = 0;
    std::size_t bytes = 0;
  };
  Usage usage(SpaceId space) const;

  /// When anything was last read from it; nullopt where it is gone.
  std::optional<Clock::time_point> last_heard(ConnectionId who) const;
  /// Closes a connection once its queued bytes are sent.
  void close(ConnectionId who);
  /// Beyond loopback, PyTorch's store is served to these peers only (numeric addresses); nullopt,
  /// as at first: to all. Others are closed and counted, those that are connected already, too.
  void restrict_c10d(std::optional<std::vector<std::string>> hosts);
  /// Closes every c10d connection and starts an empty c10d namespace; its listeners stay.
  void renew_c10d();
  /// Closes listeners and connections.
  void stop();

  Counters counters() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch::store
