#pragma once

#include "collectives/transport/message/message.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace dlaunch {

/// The last calls of a communicator that uses a device: other ranks' calls are compared with them
/// when they become known, which may be late. For any number of threads. Pure.
class CallHistory {
 public:
  using Fingerprint = transport::Fingerprint;
  /// As many as a device's queue holds: collectives, and messages with one rank.
  static constexpr std::size_t calls_max = 1024;

  /// A collective, on a device or not.
  void record(const Fingerprint& call);
  std::optional<Fingerprint> find(std::uint64_t sequence) const;
  Fingerprint last() const;
  /// A message on the device, to or from a rank (of the world).
  void record_message(int peer, const Fingerprint& message);

  /// The calls that other ranks have not been told of: how many, and, once, which. A message is
  /// told to the rank it goes to; a collective has no peer.
  std::size_t untold_count() const;
  struct Untold {
    std::vector<Fingerprint> collectives;
    std::vector<std::pair<int, Fingerprint>> messages;
  };
  Untold take_untold();

  /// Takes a rank's word on a message that it sends to this one.
  void take_message(int from, const Fingerprint& message);
  /// The first message that is not what its receiver expects.
  struct Unlike {
    int from = -1;
    Fingerprint sent, expected;
  };
  std::optional<Unlike> unlike() const;
  bool has_unlike() const noexcept { return has_unlike_; }

 private:
  /// The messages of a pair of ranks that have not met yet; one of the two sides is empty.
  struct Messages {
    std::deque<Fingerprint> sent, expected;
    bool is_known = true;  ///< No message was dropped, so their order identifies them.
  };
  void pair(int from);

  mutable std::mutex mutex_;
  /// Apart from each other, as many calls on the host end while one on the device is still to be
  /// compared.
  std::vector<Fingerprint> on_host_ = std::vector<Fingerprint>(calls_max);
  std::deque<Fingerprint> on_device_;  ///< The oldest first.
  Fingerprint last_;
  Untold untold_;
  std::map<int, Messages> received_;
  std::optional<Unlike> unlike_;
  std::atomic<bool> has_unlike_{false};
};

}  // namespace dlaunch
