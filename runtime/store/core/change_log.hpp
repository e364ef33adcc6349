#pragma once

#include <dlaunch/store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>

namespace dlaunch::store {

/// A complete round of a barrier or an all_gather, whose answer may not have reached all.
struct CompleteRound {
  bool gathers = false;  ///< An all_gather; else a barrier.
  std::string_view name;
  std::uint64_t round = 0;
  std::shared_ptr<const Bytes> block;  ///< The gathered blobs; null for nothing.
  std::string_view too_big;            ///< Why they cannot be had.
};

/// Hears of every change of a namespace's keys, queues and rounds, in their order and before any of
/// them is answered. Replayed into an empty namespace by the restore calls of KeyValues, the
/// changes make the same contents again. Waits, watches and open rounds are not part of it: clients
/// ask for them again. Views are borrowed for the call.
class ChangeLog {
 public:
  virtual ~ChangeLog() = default;
  /// The key has this value now; it is leased to `owner`, or to nobody where that is 0.
  virtual void stored(std::string_view key, BytesView value, std::uint64_t owner,
                      std::chrono::milliseconds lease) = 0;
  virtual void erased(std::string_view key) = 0;
  /// At the end of the queue.
  virtual void pushed(std::string_view queue, BytesView value) = 0;
  /// The first entry has left the queue.
  virtual void popped(std::string_view queue) = 0;
  /// The last complete round of that name.
  virtual void completed(const CompleteRound& round) = 0;
};

}  // namespace dlaunch::store
