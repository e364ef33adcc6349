#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>

namespace dlaunch {

/// For how long the nodes of a job, and their rendezvous, bear each other's silence. Everything
/// follows from the first two, and those from the keep-alive that the job's options set; no time of
/// this kind stands anywhere else. docs/operations.md lists them, liveness_test how they must lie
/// to each other. Sums of times without an end have none.
struct Liveness {
  Clock::duration lease = std::chrono::seconds(5);  ///< A node that is silent for so long is lost.
  /// For a broken connection to come back; the lease still counts.
  Clock::duration reconnect_grace = std::chrono::seconds(2);

  /// A connection that broke is known to be gone at once, and tried again after some 50 ms: a
  /// longer lease is no reason to wait longer for it.
  static constexpr Liveness of(Clock::duration heartbeat, int heartbeats_missed_max) {
    const bool endless = heartbeat > Clock::duration::max() / std::max(1, heartbeats_missed_max);
    const auto lease = endless ? Clock::duration::max() : heartbeat * heartbeats_missed_max;
    return {lease, std::min<Clock::duration>(lease / 5 * 2, std::chrono::seconds(2))};
  }

  // ---- How a node sees its rendezvous ----
  /// Nothing came from there for so long, though it was asked: the connection is taken for dead.
  constexpr Clock::duration silence_max() const { return sum(lease, reconnect_grace); }
  /// The longest pause between two tries to connect again.
  constexpr Clock::duration retry_pause_max() const {
    return std::min<Clock::duration>(lease, std::chrono::seconds(5));
  }
  /// For a name lookup, for connecting to one address, for the answer to HELLO. They take as long
  /// as the network does, whatever the lease.
  static constexpr Clock::duration step_max = std::chrono::seconds(5);
  /// If the rendezvous is at another node, it is lost with that node so long after it fell silent:
  /// for a lease it is tried in vain.
  constexpr Clock::duration host_lost_after() const { return sum(silence_max(), lease); }
  /// A successor hosts when it has given the host up itself, which may be somewhat later.
  constexpr Clock::duration successor_patience() const { return sum(lease, step_max); }

  // ---- A rendezvous that was started anew ----
  /// For an epoch's nodes to come back, from the first of them on.
  constexpr Clock::duration comes_back_within() const { return sum(silence_max(), step_max); }
  /// For an epoch's first node to come back, from the start on, while others use its job's id.
  constexpr Clock::duration returns_within() const {
    return std::max<Clock::duration>(sum(comes_back_within(), comes_back_within()),
                                     std::chrono::seconds(30));
  }

  // ---- Our own sleep, and theirs ----
  /// Silent for so long a node may be gone, and one that has done nothing for so long stood still.
  constexpr Clock::duration doubtful_after() const { return lease / 2; }
  /// A tick that is so late says that the process stood still: a small part of the shortest time in
  /// which a node can be given up, but more than a busy machine's delays.
  constexpr Clock::duration late_tick() const {
    const bool has_grace = reconnect_grace > Clock::duration::zero();
    const auto shortest = has_grace ? std::min(lease, reconnect_grace) : lease;
    return std::max<Clock::duration>(shortest / 4, std::chrono::milliseconds(100));
  }

  bool operator==(const Liveness&) const = default;

 private:
  static constexpr Clock::duration sum(Clock::duration a, Clock::duration b) {
    return a > Clock::duration::max() - b ? Clock::duration::max() : a + b;
  }
};

}  // namespace dlaunch
