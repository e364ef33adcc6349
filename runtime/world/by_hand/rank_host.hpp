#pragma once

#include "runtime/base/os/unique_fd.hpp"
#include "runtime/segment/segment.hpp"
#include "runtime/world/by_hand/roster.hpp"
#include "runtime/world/member/membership.hpp"

#include <dlaunch/error.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// Hosts the store of a world that has no agent, in a thread of its own: in rank 0's process when
/// the ranks are started by hand, in the parent when it spawned them. It admits the members, tells
/// the others when one is lost, and tells all when the world cannot form. Any thread may call.
class RankHost {
 public:
  struct Options {
    int world_size = 1;
    std::string job;                   ///< A HELLO that names another job is refused (mismatch).
    std::vector<unique_fd> listeners;  ///< Bound and listening.
    /// Whether the owner watches the members' processes and calls tell_lost itself; if not, a
    /// connection that closes without a goodbye is a loss.
    bool owner_tells_losses = false;
    /// Set if all members are children of this process: the memory that they share, made when the
    /// first one comes. If it cannot be had, they do without.
    std::optional<SegmentPlan> segment;
  };
  explicit RankHost(Options options);
  /// Disconnects all members that are still connected.
  ~RankHost();

  /// A new connection to this host, from within its own process.
  unique_fd connect();
  /// Serves the other end of a connected socket.
  void adopt(unique_fd connected);

  /// A member's process has ended. One that said goodbye before is no loss, unless it `failed`
  /// later.
  void tell_lost(const PeerLoss& loss, bool failed);
  /// Tells every member to give up with this error, and refuses later ones with it. The sentence of
  /// a timeout is completed with who came and who did not.
  void fail(Errc code, const std::string& sentence);
  /// The members' claims about failed calls, each one's first.
  std::map<int, Claim> claims();
  /// The claim that all were told if the world could not form.
  std::optional<Claim> forming_claim();
  /// The members' shared memory; null where there is none, or not yet.
  std::shared_ptr<Segment> segment();
  /// Waits until no member is connected any more; false if some still were at the deadline.
  bool await_departures(Clock::time_point deadline);

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch
