#pragma once

#include "collectives/algorithms/by_node.hpp"
#include "collectives/call/core/argument.hpp"
#include "collectives/call/core/call_context.hpp"
#include "collectives/call/core/device_history.hpp"
#include "collectives/call/wait/lent_thread.hpp"
#include "collectives/reduce/reduce_ops.hpp"
#include "collectives/transport/links.hpp"
#include "collectives/transport/shm/shm_group.hpp"

#include <dlaunch/communicator.hpp>

#include <atomic>
#include <optional>
#include <string>
#include <vector>

namespace dlaunch {

/// Whether a communicator was ended from outside of its calls, and where in the program. For any
/// number of threads.
class Aborted {
 public:
  /// The first one counts.
  void set(const CallSite& site) noexcept {
    if (is_taken_.exchange(true)) return;
    site_ = site;
    is_set_ = true;
  }
  operator bool() const noexcept { return is_set_; }
  /// Once it is set.
  const CallSite& site() const noexcept { return site_; }

 private:
  std::atomic<bool> is_taken_{false};
  CallSite site_{"", 0, ""};
  std::atomic<bool> is_set_{false};
};

/// Resources that a communicator's calls hand on to each other.
struct Kept {
  BufferPool buffer_pool;
};

/// A call's surroundings, timeout and site. All borrowed for the call's life.
struct CallSetting {
  transport::Links& mesh;
  const Group& group;
  Kept& kept;
  const Aborted& aborted;
  Clock::duration timeout;
  CallSite site;
  Flight::Entry* flight = nullptr;  ///< The entry in which it is recorded.
  // For messages: the rank here.
  int peer = any_source;
  int tag = 0;
  CallHistory* history = nullptr;  ///< Not null if a device is used.
  LentThread* lent = nullptr;      ///< Null: the caller's own, to the call's end.
  bool has_own_timeout = false;    ///< Else the timeout is the communicator's.
  const char* name = nullptr;      ///< See CallContext.
};

/// A call, as its parts see it.
struct CallFrame {
  const CallSetting& setting;
  transport::ShmGroup* shm = nullptr;                 ///< All ranks'.
  const algorithms::by_node::Nodes* nodes = nullptr;  ///< Set if some ranks, not all, share memory.
  bool tolerant = false;  ///< Wrong arguments on other ranks do not end its waits.
  const transport::Fingerprint& fingerprint;
  std::optional<Argument> argument = std::nullopt;

  CallContext context() const {
    return {setting.group, fingerprint, setting.timeout, setting.site,
            setting.peer,  setting.tag, setting.name};
  }
  /// Whether its thread is to be given back instead of waiting.
  bool is_thread_wanted() const noexcept {
    return setting.lent != nullptr && setting.lent->is_wanted();
  }
  bool is_message() const noexcept { return transport::is_message(fingerprint.op); }
  /// The text of Argument::text(); empty where there is none.
  std::string argument_text() const;
  /// The shm group in which members are waited for: all ranks', or the node's.
  transport::ShmGroup* shm_here() const {
    return shm != nullptr || nodes == nullptr ? shm : nodes->shm();
  }
  /// A member of that shm group.
  int world_rank_of(int member) const {
    return setting.group.world_rank(shm != nullptr ? member : nodes->rank_of(member));
  }
  /// On another node, and watched over by another agent than this one's.
  bool is_elsewhere(int world_rank) const;
  /// Whether it is a loss, and not an orderly leave, of a rank of this communicator.
  bool is_lost_here(const PeerLoss& loss) const {
    return !loss.left && setting.group.rank_of(loss.rank) >= 0;
  }
};

inline std::string CallFrame::argument_text() const {
  const std::string text = argument ? argument->text() : "";
  if (!text.empty() || !is_all(fingerprint.reduce)) return text;
  const Reduction plain(fingerprint.reduce);
  return Argument{&plain}.text();
}

inline bool CallFrame::is_elsewhere(int world_rank) const {
  const WorldInfo& info = setting.mesh.world().info();
  const int place = world_rank - (info.rank - info.local_rank);
  return info.node_count > 1 && (place < 0 || place >= info.local_size);
}

}  // namespace dlaunch
