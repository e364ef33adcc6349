#pragma once

#include "rendezvous/rounds/rounds.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/segment/segment.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

namespace dlaunch::rendezvous {

/// The socket at which an agent lends memory to the other agents of its host.
struct MemoryDoor {
  std::string name;    ///< Abstract and random; empty: none.
  unique_fd listener;  ///< Listens under that name; empty: nothing is lent.

  /// Empty where abstract sockets are forbidden.
  static MemoryDoor open();
};

/// The memory that a node's ranks are to have in one epoch.
struct MemoryPlan {
  std::uint64_t incarnation = 0;
  SegmentPlan own;           ///< For this node's ranks alone.
  CommonMemory common = {};  ///< The memory to be shared with other nodes.
  /// The key that agents prove to each other; nullopt: none is asked for.
  std::optional<Key> key = std::nullopt;
};

/// The memory that the ranks of a node share, and where they record their calls: made here, for
/// other nodes of the host, too, or lent by the agent that makes it. It is made when the first rank
/// wants it, since programs that do not link us need none. One thread: that of `io`.
class NodeMemory {
 public:
  /// Hears why there is no memory, or none that other nodes share.
  using Warn = std::function<void(const std::string& why, bool is_common)>;

  NodeMemory(boost::asio::io_context& io, MemoryDoor door, Warn warn);
  ~NodeMemory();

  /// Another epoch: the memory of the last one is let go of, and nobody waits for it any more.
  void begin(MemoryPlan plan);
  /// Calls `then` when it is known what memory there is: at once, or when the lender has answered
  /// or is given up.
  void when_known(std::function<void()> then);
  /// Null until then, and where there is none.
  Segment* segment() const { return epoch_.segment.get(); }
  /// Nothing is lent or borrowed any more.
  void stop();

 private:
  struct Ask;
  struct Guest;
  struct Loan;
  struct Epoch {
    std::optional<MemoryPlan> plan = std::nullopt;
    std::shared_ptr<Segment> segment = nullptr;
    bool known = false;
    std::shared_ptr<Loan> loan = nullptr;  ///< While it is awaited.
    std::vector<std::function<void()>> waiting = {};
  };

  void accept();
  void receive(unique_fd come);
  void hear(const std::shared_ptr<Guest>& guest);
  void serve(const std::shared_ptr<Guest>& guest);
  bool is_early(const Ask& ask) const;
  bool may_have(const Ask& ask) const;
  void drop(const std::shared_ptr<Guest>& guest);

  void make(bool for_all);
  void borrow();
  void take_loan();
  void do_without(const std::string& why);
  void tell_known();

  boost::asio::io_context& io_;
  const std::string name_;
  const Warn warn_;
  boost::asio::posix::stream_descriptor door_;
  boost::asio::steady_timer pause_;  ///< Until another agent may be let in, where that failed.
  std::vector<std::shared_ptr<Guest>> guests_;
  Epoch epoch_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  ///< What is awaited checks that we live.
};

}  // namespace dlaunch::rendezvous
