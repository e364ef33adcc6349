#pragma once

#include "runtime/base/doing.hpp"
#include "runtime/base/os/unique_fd.hpp"
#include "runtime/base/secret/secret.hpp"
#include "runtime/base/verdict.hpp"
#include "runtime/segment/segment.hpp"

#include <dlaunch/error.hpp>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// A rank that will not come back, and why.
struct PeerLoss {
  int rank = -1;
  std::string host;
  std::string cause;  ///< "killed by SIGKILL", "exited with 3", "exited with 0 before the others".
  bool left = false;  ///< It exited with 0: that is no failure unless somebody waits for it.
};

/// The worker's link to the watcher of its peers: its agent, or the rank that hosts the store. The
/// data plane polls `fd` beside its own sockets and calls `losses` when it is readable, so that a
/// death wakes every waiter at once. Any thread may call.
class Membership {
 public:
  virtual ~Membership() = default;

  /// Readable when news may have arrived; -1 if there is nothing to poll.
  virtual int fd() const = 0;
  /// Reads messages that have arrived, without blocking, and returns every loss known so far, in
  /// the order of the news. Throws Error{aborted} after an abort, Error{peer_lost} when the agent
  /// itself is gone.
  virtual std::vector<PeerLoss> losses() = 0;
  /// Tells the agent that a call failed, and whose fault it was; it ends the failure grace for this
  /// worker. Never throws.
  virtual void report(const Error& error, const Claim& claim) noexcept = 0;
  /// Asks the agent what these ranks of other nodes do, and waits for nothing. Never throws.
  virtual void inquire(const std::vector<int>& ranks) noexcept = 0;
  /// The answer to the last inquiry, once it is there: of the ranks whose agents have answered.
  virtual std::optional<std::map<int, SeenDoing>> doing() const = 0;
  /// The listening TCP socket that the agent bound for this worker's data plane, once; empty if it
  /// gave none, so that the caller has to bind its own.
  virtual unique_fd take_listener() = 0;
  /// The memory that this rank shares with the others of its node; it lives as long as anybody
  /// holds it. Null if there is nothing to share, or it could not be had.
  virtual std::shared_ptr<Segment> segment() = 0;
  /// The key that the ranks of this epoch prove to each other; nullopt: none is asked for.
  virtual std::optional<Key> data_key() const = 0;
  /// Waits until the agent has read this process's output on stdout and stderr; true at once
  /// without an agent.
  virtual void drain_output(Clock::time_point deadline) = 0;
};

}  // namespace dlaunch
