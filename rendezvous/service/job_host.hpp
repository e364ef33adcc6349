#pragma once

#include "rendezvous/service/node_memory.hpp"
#include "runtime/base/deadline.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/store/protocol/wire.hpp"
#include "runtime/store/relay/relay.hpp"
#include "runtime/store/relay/uplink.hpp"
#include "runtime/store/server/server.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

namespace dlaunch::rendezvous {

/// Hears the members' reports about themselves. Ranks are global. Called on the thread that runs
/// the io_context.
class JobObserver {
 public:
  virtual ~JobObserver() = default;
  virtual void on_joined(int rank) = 0;
  virtual void on_reported(int rank, const wire::Report& report) = 0;
  /// The member wants to know what these ranks of other nodes do; JobHost::tell_doing answers.
  virtual void on_inquired(int rank, const std::vector<std::int32_t>& about) = 0;
  /// The member's connection is gone, with or without a goodbye.
  virtual void on_left(int rank) = 0;
  /// A sentence for the user: the members go on, but not as well as they could.
  virtual void on_warning(const std::string& sentence) = 0;
  /// PyTorch's store has closed the connection of this client, for what it asked; a few are told
  /// of each attempt.
  virtual void on_refused_client(const Address& peer, const Address& own,
                                 const std::string& why) = 0;
};

/// The description of the job that its members get.
struct JobIdentity {
  std::string job;
  std::uint64_t incarnation = 0;
  std::uint64_t epoch = 1;
  int first_rank = 0;  ///< The ranks that live here are first_rank..first_rank+local_size-1.
  int local_size = 1;
  int world_size = 1;
  std::string host;                     ///< This host's name, for messages.
  std::string mesh_host = "127.0.0.1";  ///< The host at which other ranks reach the ones here.
  std::chrono::milliseconds failure_grace = failure_grace_standard;
  /// derive_data_key of the job's key and the epoch, where the job has a secret.
  std::optional<Key> data_key = std::nullopt;
  bool crowded = false;      ///< Whether this host's ranks outnumber its processors.
  CommonMemory memory = {};  ///< The memory shared with ranks of other nodes of the host.
};

/// Everything that an agent hosts for its job: the native store and the shared memory, both new for
/// each attempt; PyTorch's store, whose listener is held over all attempts; the admission of
/// members, and the news of lost ones. One thread: that of `io`.
class JobHost : private store::Host {
 public:
  /// Throws Error where the system denies a socket.
  /// With `upstream` the members' requests to the store go there; without, it is here. At `door`
  /// the agents of other nodes of this host borrow memory.
  JobHost(boost::asio::io_context& io, JobIdentity identity, JobObserver& observer,
          store::Uplink* upstream = nullptr, MemoryDoor door = {});
  ~JobHost() override;

  /// "@dlaunch-...": where a worker of the same user finds us when its control socket was closed
  /// on the way.
  const std::string& socket_name() const { return socket_name_; }

  /// PyTorch's store, on a bound and listening socket.
  void serve_c10d(unique_fd listener);
  /// The same, where another server listens for it already, on a port that several protocols share.
  void share_c10d(store::Server& server);
  /// Beyond loopback, PyTorch's store is served to these addresses only; nullopt: to all.
  void serve_c10d_to(const std::optional<std::vector<std::string>>& hosts);
  /// The clients of PyTorch's store that wait for something.
  std::vector<store::Server::C10dWaiting> c10d_waiting() const;
  /// Forgets the members, their keys and the keys of PyTorch's store. To be called when no worker
  /// of the old attempt is left.
  void begin_attempt(JobIdentity identity);
  /// The agent's end of a worker's control socket; only this rank may say HELLO on it.
  void expect(int rank, unique_fd control);
  /// Tells all members, those who come later too, that a rank is gone; barriers and all_gathers of
  /// the whole world that lack it fail.
  void publish_loss(int rank, const std::string& host, const Departure& how);
  /// The remote store will not come back: workers that ask it hear so at once.
  void lose_store(const std::string& why);
  /// Tells a member, which has asked, what is known of other nodes' ranks.
  void tell_doing(int rank, const wire::Doing& doing);
  /// The memory that the members of this attempt share; null if nobody has come yet, or there is
  /// none.
  Segment* shared_memory() const { return memory_.segment(); }
  bool is_connected(int rank) const { return attempt_.by_rank.contains(rank); }
  void stop();

 private:
  struct Member {
    store::ConnectionId connection = 0;
    std::uint64_t session = 0;
    std::int64_t pid = 0;
  };
  struct Attempt {
    std::map<store::ConnectionId, int> expected;  ///< Which rank a control socket belongs to.
    std::map<int, Member> by_rank;
    std::map<store::ConnectionId, int> by_connection;
    std::vector<wire::PeerLost> losses;
    bool has_warned = false;
    int refused_clients = 0;
  };

  std::variant<wire::Welcome, Refusal> admit(store::ConnectionId who,
                                             const wire::Hello& hello) override;
  void on_message(store::ConnectionId who, const wire::FrameHeader& header,
                  BytesView payload) override;
  void on_other_version(store::ConnectionId who, std::uint32_t theirs) override;
  void on_closed(store::ConnectionId who, bool goodbye) override;

  std::unique_ptr<store::Server> make_server();
  std::optional<Refusal> objection(store::ConnectionId who, const wire::Hello& hello) const;
  void plan_memory();
  void warn_of_memory(const std::string& why, bool is_common);
  void welcome(store::ConnectionId who, int rank);
  void grant(store::ConnectionId to);
  void warn(const std::string& sentence);
  void hear_refused_clients(store::Server& server);
  void tell(store::ConnectionId to, const auto& message, std::vector<unique_fd> fds = {});
  /// Makes a server for a new attempt.
  void begin_serving();

  boost::asio::io_context& io_;
  JobIdentity identity_;
  JobObserver& observer_;
  std::string socket_name_;
  unique_fd listener_;
  std::optional<store::Relay> relay_;  ///< Set if the store is at another node.
  std::unique_ptr<store::Server> native_;
  std::unique_ptr<store::Server> c10d_;
  store::Server* shared_c10d_ = nullptr;
  NodeMemory memory_;
  Attempt attempt_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  ///< Posted work checks that we live.
};

}  // namespace dlaunch::rendezvous
