#pragma once

#include "collectives/transport/message.hpp"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

namespace dlaunch {

/// The last collectives of a communicator that uses a device: other ranks' calls are compared with
/// them when they become known, which may be late. For any number of threads.
class CallHistory {
 public:
  /// As many as a device's queue holds.
  static constexpr std::size_t calls_max = 1024;

  void record(const transport::Fingerprint& call) {
    const std::lock_guard lock(mutex_);
    calls_[call.sequence % calls_max] = last_ = call;
  }
  std::optional<transport::Fingerprint> find(std::uint64_t sequence) const {
    const std::lock_guard lock(mutex_);
    const auto& call = calls_[sequence % calls_max];
    return call.sequence == sequence ? std::optional(call) : std::nullopt;
  }
  transport::Fingerprint last() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<transport::Fingerprint> calls_ = std::vector<transport::Fingerprint>(calls_max);
  transport::Fingerprint last_;
};

}  // namespace dlaunch
