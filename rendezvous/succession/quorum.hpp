#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace dlaunch::rendezvous {

/// Counts the nodes of a job that may have gone to another host. A node that loses its host goes by
/// the last epoch it has heard of, and another host may begin an epoch with more than half of that
/// epoch's nodes. So a host that cannot reach more than half of an epoch's nodes must not go on,
/// because they may. Pure. Not thread-safe. Nodes are named by their session.
class Quorum {
 public:
  using Session = std::uint64_t;
  struct Count {
    std::uint64_t epoch = 0;
    int nodes = 0;
    int apart = 0;  ///< Number of these nodes that may vote elsewhere.

    bool lacks_half() const { return 2 * apart > nodes; }
    bool has_majority() const { return 2 * apart < nodes; }
  };

  /// An epoch is closed. Each of its nodes may have heard of it from now on, or not.
  void begin(std::uint64_t epoch, const std::vector<Session>& nodes);
  /// An epoch of a host that is lost. None of its nodes is here yet.
  void take_over(std::uint64_t epoch, int nodes);
  /// A node of the epoch that was taken over is here. It goes to no other host while it is.
  void came(Session session, std::uint64_t epoch);
  /// The node has heard of the epoch, and goes by no earlier one any more.
  void heard_of(Session session, std::uint64_t epoch);
  /// The node is out of reach.
  void lost(Session session);
  /// The node goes by no epoch any more: it has left, or holds nothing.
  void forget(Session session);

  /// An epoch more than half of whose nodes are out of reach; nullopt: there is none.
  std::optional<Count> outvoted() const;
  /// The counts of the epoch; zeros if it is not known.
  Count of(std::uint64_t epoch) const;

 private:
  /// The epochs by which a node may go, oldest first.
  using Epochs = std::vector<std::uint64_t>;
  void drop_old();

  std::map<std::uint64_t, Count> epochs_;
  std::map<Session, Epochs> here_, apart_;
};

}  // namespace dlaunch::rendezvous
