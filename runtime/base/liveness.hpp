#pragma once

#include <dlaunch/error.hpp>

#include <algorithm>

namespace dlaunch {

/// How long the nodes of a job, and their rendezvous, tolerate each other's silence. Everything
/// follows from the first two members, and those from the keep-alive of the job's options; no time
/// of this kind stands anywhere else. docs/operations.md lists them, and liveness_test checks how
/// they relate. Sums with an infinite time are infinite.
struct Liveness {
  Clock::duration lease = std::chrono::seconds(5);  ///< A node that is silent for so long is lost.
  /// How long a broken connection may take to come back; the lease still counts.
  Clock::duration reconnect_grace = std::chrono::seconds(2);

  /// A connection that broke is known to be gone at once, and tried again after some 50 ms: a
  /// longer lease is no reason to wait longer for it.
  static constexpr Liveness of(Clock::duration heartbeat, int heartbeats_missed_max) {
    const bool endless = heartbeat > Clock::duration::max() / std::max(1, heartbeats_missed_max);
    const auto lease = endless ? Clock::duration::max() : heartbeat * heartbeats_missed_max;
    return {lease, std::min<Clock::duration>(lease / 5 * 2, std::chrono::seconds(2))};
  }

  // ---- How a node sees its rendezvous ----
  /// A connection counts as dead if nothing came for so long although the other end was asked.
  constexpr Clock::duration silence_max() const { return sum(lease, reconnect_grace); }
  /// The longest pause between two tries to connect again.
  constexpr Clock::duration retry_pause_max() const {
    return std::min<Clock::duration>(lease, std::chrono::seconds(5));
  }
  /// The limit of a name lookup, of connecting to one address, and of the answer to HELLO. These
  /// depend on the network, not on the lease.
  static constexpr Clock::duration step_max = std::chrono::seconds(5);
  /// A rendezvous at another node counts as lost, with that node, so long after it fell silent: it
  /// is then tried in vain for a lease.
  constexpr Clock::duration host_lost_after() const { return sum(silence_max(), lease); }
  /// A successor hosts when it has given the host up itself, which may be somewhat later.
  constexpr Clock::duration successor_patience() const { return sum(lease, step_max); }

  // ---- A rendezvous that was started anew ----
  /// How long an epoch's nodes may take to come back, from the first of them on.
  constexpr Clock::duration comes_back_within() const { return sum(silence_max(), step_max); }
  /// How long an epoch's first node may take to come back, from the start on, while others use its
  /// job's id.
  constexpr Clock::duration returns_within() const {
    return std::max<Clock::duration>(sum(comes_back_within(), comes_back_within()),
                                     std::chrono::seconds(30));
  }

  // ---- Our own sleep, and theirs ----
  /// A node that was silent for so long may be gone; one that did nothing for so long stood still.
  constexpr Clock::duration doubtful_after() const { return lease / 2; }
  /// A tick this late shows that the process stood still. It is a small part of the shortest time
  /// in which a node can be given up, but more than a busy machine's delays.
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
