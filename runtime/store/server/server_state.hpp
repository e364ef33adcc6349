#pragma once

#include "runtime/base/flat_map.hpp"
#include "runtime/base/os/home_process.hpp"
#include "runtime/store/c10d/c10d_session.hpp"
#include "runtime/store/native/native.hpp"
#include "runtime/store/server/connection.hpp"
#include "runtime/store/server/handler_memory.hpp"
#include "runtime/store/server/server.hpp"

#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <sys/epoll.h>

/// The inside of Server, for the files that implement it and nobody else: server_loop.cpp waits,
/// keeps time and accepts, server_connections.cpp reads, writes and closes.
namespace dlaunch::store {
namespace asio = boost::asio;

struct Listener {
  home_fd fd;
  Protocols protocols;
  bool unix_socket = false;
  std::optional<SocketAccess> access;  ///< Of a unix socket that is for more than our own user.
};

/// One epoll set holds every socket of the server and is itself one descriptor of the io_context. A
/// wake-up serves all ready sockets with one system call for polling, and one to read and one to
/// write for each. (With an Asio socket for each, every wait would cost one more.)
struct Server::State final : Host, Connection::Owner, std::enable_shared_from_this<Server::State> {
  State(asio::io_context& context, Host& owner, const Limits& bounds);

  // ---- The loop ----

  void start();
  void stop();
  /// Each is one callback that asks for the next: there is nothing between two waits for which a
  /// coroutine would have to remember where it was.
  void wait_for_sockets();
  void wait_for_time();
  void serve_ready();
  /// Queues a connection that has something to do for its turn.
  void make_due(Connection& connection);
  /// Jobs are served in turn until the batch has lasted long enough.
  void take_turns();
  /// Serves a connection; what changes meanwhile, its job has changed.
  void serve_for_job(Connection& connection, Clock::time_point now);
  /// Has the host do the job's own work until the turn is over; returns whether nothing is left.
  bool work_for_job(const std::shared_ptr<Turns::Job>& job);
  /// Does `work`; what it changes, the job has changed.
  template <class Work>
  void change_for_job(std::shared_ptr<Turns::Job> job, bool by_stranger, Work work);
  /// Those with which the connection has its turns. Dead ones, of whichever job, are strangers: a
  /// crowd of them keeps no job waiting.
  const std::shared_ptr<Turns::Job>& queue_of(const Connection& connection) const {
    const bool is_dead = (connection.events & (EPOLLHUP | EPOLLERR)) != 0;
    return connection.stranger || is_dead ? strangers : connection.job;
  }
  /// The job that is served, or with null none, has made the changes since the last call.
  void note_changes(const std::shared_ptr<Turns::Job>& turn);
  /// The last change that what is said to this connection now may tell of.
  std::uint64_t told_change(const Connection& connection);
  /// The job has changed so much that is not durable yet that it waits until some of it is.
  bool has_much_unsaved(Turns::Job& job) const;
  /// Everything that may end connections runs in a batch; they are destroyed when it is over.
  template <class Work>
  void batch(Work work) {
    in_batch = true;
    guarded(nullptr, work);
    const auto now = Clock::now();
    guarded(nullptr, [&] { native.tick(now); });
    guarded(nullptr, [&] {
      if (const auto next = c10d->next_deadline(); next && *next <= now) c10d->tick(now);
    });
    settle(now);
    in_batch = false;
    arm_surely();
    if (!turns.empty()) go_on_soon();
  }
  /// Runs a step; a failure ends this connection, if it belongs to one, and nothing else.
  template <class Work>
  void guarded(Connection* connection, Work work) {
    try {
      work();
    } catch (const std::exception& error) {
      failed(connection, error.what());
    }
  }
  void failed(Connection* connection, const char* why) noexcept;
  /// Whether some connections wait for their turn.
  void go_on_soon();
  /// The same, a little later, for want of memory.
  void go_on_later() noexcept;
  void settle(Clock::time_point now);
  /// Sends at once the bytes that a call from outside of any batch has queued; callbacks come
  /// later.
  void send_soon();

  // ---- Time ----

  void arm();
  /// Without memory to find the next deadline it is sought again soon.
  void arm_surely();
  void on_time(Clock::time_point now);

  // ---- Accepting ----

  void accept_some(std::uint64_t index, Clock::time_point now);
  bool may_accept(Clock::time_point now);
  static std::string unwelcome_user(int socket, const SocketAccess& access);
  /// Starts the time of a connection that has just come; `counts` says whether it counts for its
  /// address.
  void await_hello(Connection& connection, bool counts, Clock::time_point now);
  /// False where this address has as many connections as it may; else it counts one more.
  bool count_peer(Connection& connection);
  /// Whether PyTorch's store is for the peer of this socket.
  bool admits_c10d(int socket) const;
  void make_room(std::uint64_t index, Clock::time_point now, const std::string& why);
  void make_pending(Connection& connection, Clock::time_point now);
  void no_longer_pending(Connection& connection);
  bool drop_slow_pending(Clock::time_point now);
  bool give_more_time(Clock::time_point now);
  void drop_oldest_pending();
  void pause_accepting(std::uint64_t index, Clock::time_point until);
  void resume_accepting();
  void watch_listener(std::uint64_t index, int operation, std::uint32_t events);

  // ---- Connections ----

  Connection* find(ConnectionId id);
  Connection& add(unique_fd socket, Protocols protocols);
  /// epoll tells of an event once, when it begins, and not as long as it lasts: it would tell of a
  /// crowd that waits for its turns again and again.
  void watch(Connection& connection, int operation, std::uint32_t events);
  /// epoll also tells of what is ready already when it becomes wanted.
  void set_interest(Connection& connection, std::uint32_t events);
  /// A later turn goes on with what epoll does not tell again.
  void come_again(Connection& connection, std::uint32_t events);
  void serve(Connection& connection, Clock::time_point now);
  /// Continues with its earlier bytes, and reads the new ones.
  void on_event(Connection& connection, std::uint32_t events, Clock::time_point now);
  void feed(Connection& connection, BytesView in, Clock::time_point now);
  /// Has the memory budget count the connection, and ends it where it is the one too many.
  void charge(Connection& connection);
  /// By the first byte, which no two protocols share.
  bool choose_protocol(Connection& connection, std::byte first, Clock::time_point now);
  void begin_c10d();
  /// Sends what there is to send; at `end` the rest is left for later turns, which are those of the
  /// jobs that are told.
  void flush_dirty(Clock::time_point now, Clock::time_point end = Clock::time_point::max());
  void send_in_turn(Connection& connection);
  void hold_back(Connection& connection);
  void flush(Connection& connection, Clock::time_point now);
  /// Sends the bytes that waited for changes that are now durable.
  void on_durable();
  /// Closing a socket with unread input would reset it, and the peer would miss why it was refused.
  void hear_out(Connection& connection, Clock::time_point now);
  void linger(Connection& connection, Clock::time_point now);
  void end(Connection& connection);
  void destroy(ConnectionId id);
  void on_dirty(Connection& connection) noexcept override { dirty.push_back(&connection); }
  std::vector<Bytes>& spare_buffers() override { return spare; }

  // ---- The job's secret: server_tls.cpp ----

  /// Answers a TLS hello where there is no secret, so that a client that has one can tell us from a
  /// stranger's port.
  void refuse_tls(Connection& connection);
  void begin_tls(Connection& connection, Clock::time_point now);
  /// Decrypts into `plain`; false when the connection is at an end.
  bool unseal(Connection& connection, BytesView in, Clock::time_point now);
  /// Why this HELLO is not believed; empty: it is.
  std::optional<Refusal> unproven(Connection& connection, const wire::Hello& hello);
  void not_authenticated(const Connection& connection, RefusalKind kind, const std::string& why);
  void tell_unproven(RefusalKind kind, const Connection& connection, const std::string& what);

  // ---- The native sessions' host: passes on to ours ----

  std::variant<wire::Welcome, Refusal> admit(ConnectionId who, const wire::Hello& hello) override;
  void on_message(ConnectionId who, const wire::FrameHeader& header, BytesView payload) override;
  void on_other_version(ConnectionId who, std::uint32_t theirs) override;
  void on_closed(ConnectionId who, bool goodbye) override;

  // ---- What it works on ----

  asio::io_context& io;
  Host& host;
  const Limits limits;
  int poll = -1;  ///< Owned by `ready`.
  asio::posix::stream_descriptor ready;
  asio::steady_timer timer;
  HandlerMemory sockets_memory, time_memory;
  Clock::time_point armed = Clock::time_point::max();  ///< When the timer goes off.

  std::optional<ServerKeys> tls;  ///< Set where there is a secret.
  std::shared_ptr<const ServerSecret> secret;
  Bytes plain;  ///< The plaintext of one read of one connection.
  std::size_t queued_bytes_max = Connection::queued_bytes_max;
  std::vector<Bytes> spare;
  static constexpr std::size_t read_bytes = 256u << 10;
  /// The buffer for one read of one connection. It is never cleared, which would cost more than a
  /// small job's whole store.
  std::unique_ptr<std::byte[]> scratch{new std::byte[read_bytes]};
  NativeSpaces native{*this, limits};
  std::unique_ptr<c10d::Namespace> c10d;  ///< From start on.
  std::vector<Listener> listeners;
  FlatMap<ConnectionId, std::unique_ptr<Connection>> connections;
  ConnectionId next_id = 1;
  std::optional<std::set<std::string>> c10d_hosts;  ///< Numeric; nullopt: all.

  Commits* commits = nullptr;          ///< Null: messages need not wait for durable changes.
  std::vector<ConnectionId> held;      ///< Connections with bytes that wait for it.
  std::shared_ptr<Turns::Job> turn;    ///< The job of the connection that is served; null: none.
  bool turn_changes = false;           ///< It has made a change meanwhile.
  std::uint64_t noted_change = 0;      ///< The last one that note_changes() knows.
  std::uint64_t common_change = 0;     ///< The last one in nobody's turn: time makes such.
  std::uint64_t last_change_gone = 0;  ///< The last one of jobs whose connections have gone.
  ConnectionLimits connection_limits;
  std::map<std::string, std::size_t> per_peer;  ///< Connections of an address.
  Turns turns;
  /// The turns of connections that have not been welcomed to a job, and of those that have and
  /// belong to none.
  const std::shared_ptr<Turns::Job> jobless = std::make_shared<Turns::Job>(),
                                    strangers = std::make_shared<Turns::Job>();
  Clock::time_point turn_end;  ///< Of the job that is served.
  bool go_on_posted = false;
  std::vector<Connection*> dirty;   ///< Have something to send.
  std::vector<ConnectionId> ended;  ///< To be destroyed when the batch is over.
  std::deque<std::pair<Clock::time_point, ConnectionId>> pending, lingering;
  std::size_t pending_count = 0;
  std::vector<std::uint64_t> paused;  ///< Listeners.
  Clock::time_point resume_at;
  bool out_of_descriptors = false;
  bool in_batch = false;
  bool sweep_posted = false;
  bool stopped = false;
  HearSlow hear_slow;
  HearRefused hear_refused;
  HearFailed hear_failed;
  HearUnproven hear_unproven;
  MakeRoom choose_to_go;
  HearFull hear_full;
  Counters counters;
};

}  // namespace dlaunch::store
