#pragma once

#include "rendezvous/rounds/rounds.hpp"

#include <cstddef>
#include <map>

namespace dlaunch::rendezvous {

struct Node {
  Session session = 0;
  NodeOffer offer;
  Clock::time_point last_heard;
  std::optional<Clock::time_point> gone = std::nullopt;  ///< When its connection broke.
  /// A node that is gone is waited for until then at least.
  Clock::time_point awaited_until = {};
  /// The hashes of the names in its offer's `share`, as a round of thousands compares them all.
  std::size_t kernel_hash = 0, memory_hash = 0;

  /// Whether its connection is broken, or it has long been silent.
  bool absent(const JobRules& rules, Clock::time_point now) const {
    return gone || now - last_heard > rules.liveness.doubtful_after();
  }
};

/// The nodes that have joined and are neither lost nor gone, with the indexes by which they are
/// found and their leases.
class Nodes {
 public:
  auto begin() const { return nodes_.begin(); }
  auto end() const { return nodes_.end(); }
  bool empty() const { return nodes_.empty(); }
  int count() const { return static_cast<int>(nodes_.size()); }
  /// The number of nodes without a connection.
  int broken() const { return broken_; }

  const Node* find(Session session) const;
  const Node* with_id(const std::string& id) const;
  const Node* with_rank_hint(int rank) const;
  /// The nodes that this one replaces, because it was started again.
  std::vector<const Node*> predecessors(const NodeOffer& offer) const;
  /// "a, b and c".
  std::string names() const;
  /// "; missing node ranks 1 and 3", if every node has said which it is.
  std::string missing_ranks(const JobRules& rules) const;

  const Node& insert(Node node, const JobRules& rules);
  Node remove(Session session);
  /// Notes that the node was heard. True: its connection was broken, and is back.
  bool hear(Session session, Clock::time_point now);
  void disconnect(Session session, const JobRules& rules, Clock::time_point now);

  /// The time at which leases have to be checked.
  std::optional<Clock::time_point> lease_check() const { return lease_check_; }
  /// The nodes whose lease has ended.
  std::vector<const Node*> find_overdue(const JobRules& rules, Clock::time_point now);
  /// We stood still, not they: leases move.
  void forgive(Clock::duration slept, Clock::time_point now);
  /// Waits for the nodes without a connection until then, whatever their leases.
  void await_broken(Clock::time_point until);

 private:
  void check_by(Clock::time_point when);

  std::map<Session, Node> nodes_;
  std::map<std::string, Session> by_id_;
  std::map<int, Session> by_hint_;
  int broken_ = 0;
  std::optional<Clock::time_point> lease_check_;  ///< No lease ends before this.
};

}  // namespace dlaunch::rendezvous
