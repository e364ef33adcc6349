#pragma once

#include "launcher/job/agent.hpp"
#include "launcher/job/hosting.hpp"
#include "launcher/job/seat.hpp"
#include "launcher/machine/master_port.hpp"
#include "launcher/plan/plan.hpp"
#include "rendezvous/service/node_memory.hpp"
#include "rendezvous/service/service.hpp"
#include "runtime/base/os/socket.hpp"
#include "runtime/store/relay/uplink.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::launcher {

class NodeSeat;
class Probe;
class QuestionLine;

/// Everything that ties an agent to its job: its seat, the connection to the rendezvous, the
/// rendezvous itself where this node hosts it, and the port of PyTorch's store. One thread: that of
/// `io`.
class JobLink {
 public:
  /// On one node the master port is taken at once; throws Error where that cannot be.
  JobLink(boost::asio::io_context& io, const AgentTask& task, SeatListener& listener);
  ~JobLink();

  /// Finds the rendezvous, or hosts it, and joins.
  void start();
  /// The job has this node only.
  bool alone() const { return alone_; }
  /// The rendezvous is here.
  bool hosts() const { return service_ != nullptr; }
  /// The rendezvous hears this node now.
  bool is_heard() const;
  /// Null until the rendezvous is found.
  Seat* seat() { return seat_.get(); }
  /// This node's place in the round, as the plan of its workers wants it, once it is known at which
  /// of its addresses node rank 0 is reached from here. A later call makes an earlier one void.
  void place(const rendezvous::Admission& admission, std::function<void(Assignment)> placed);
  /// The host at which other nodes' workers reach this node's.
  const std::string& host() const { return host_; }
  /// The way to the other nodes' agents; null on one node.
  QuestionLine* line();
  /// The node's connection, for its workers' requests; null on one node.
  store::Uplink* uplink();

  /// The listeners of PyTorch's store, once; none where the program binds it, or where it is
  /// shared.
  std::vector<unique_fd> take_store_listeners() { return std::exchange(store_listeners_, {}); }
  /// The door at which agents of other nodes of this host borrow memory; once.
  rendezvous::MemoryDoor take_memory_door() { return std::exchange(memory_door_, {}); }
  /// The server that shares its port with PyTorch's store: the rendezvous of --master-addr, where
  /// this node was its first host.
  store::Server* shared_server();

  /// Calls `closed` when the other nodes no longer need what is hosted here, or have had their
  /// time.
  void close(std::function<void()> closed);

 private:
  void look_up();
  void on_addresses(const std::vector<Address>& addresses);
  void try_again_later(const std::string& why);
  void take_seat(Listeners listeners, const JoinElsewhere& elsewhere);
  bool host_instead(const std::vector<Address>& places);
  void change_to_host(Listeners own);
  void open_service(Listeners own, rendezvous::ServiceRules hosting, bool c10d);
  unique_fd connect_to_service();
  std::string stand_by();
  unique_fd take_over(const rendezvous::Takeover& from);
  void on_service_log(const rendezvous::LogLine& line);
  rendezvous::NodeOffer offer(const Address& own);
  rendezvous::HostShare share();
  std::vector<std::string> bind_store(const std::vector<std::string>& hosts);
  Assignment assignment(const rendezvous::Admission& admission, const std::string& master) const;
  rendezvous::JobRules rules() const;

  boost::asio::io_context& io_;
  const AgentTask& task_;
  SeatListener& listener_;
  const bool alone_;
  std::uint16_t master_port_ = 0;
  std::vector<unique_fd> store_listeners_;
  rendezvous::MemoryDoor memory_door_;
  std::string note_;
  std::shared_ptr<Probe> probe_;  ///< Probes node rank 0's addresses.
  std::string host_ = "127.0.0.1";
  std::vector<Address> hosted_at_;  ///< The first is told to the others as this node's own.
  unique_fd standby_;  ///< Ready to host in place of the host; nobody is answered there yet.
  std::unique_ptr<rendezvous::Service> service_;
  Clock::time_point log_again_{};  ///< When logged_ begins anew.
  int logged_ = 0;
  std::unique_ptr<Seat> seat_;
  NodeSeat* node_seat_ = nullptr;  ///< The same, where there are several nodes.
  /// The seat that waited for a rendezvous until this node hosted one itself. It is kept, since
  /// operations that it began may refer to it.
  std::unique_ptr<Seat> former_seat_;
  bool told_of_no_secret_ = false;

  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  Clock::time_point deadline_{};  ///< To find the rendezvous.
  std::string trouble_;           ///< The name service's last answer; empty for none.
  std::function<void()> closed_;
};

}  // namespace dlaunch::launcher
