#pragma once

#include <cstdint>
#include <deque>

namespace dlaunch::store {

/// What one job has changed and is not durable yet. Places are counted in bytes from the beginning
/// of all that was recorded. Pure.
class Unsaved {
 public:
  /// So many bytes were recorded of the job's, up to this place.
  void add(std::uint64_t end, std::uint64_t bytes) {
    if (bytes == 0) return;
    parts_.push_back({end, bytes});
    bytes_ += bytes;
  }
  /// How many there are beyond this place, which does not go back.
  std::uint64_t beyond(std::uint64_t durable) {
    while (!parts_.empty() && parts_.front().end <= durable) {
      bytes_ -= parts_.front().bytes;
      parts_.pop_front();
    }
    return bytes_;
  }

 private:
  struct Part {
    std::uint64_t end = 0, bytes = 0;
  };
  std::deque<Part> parts_;
  std::uint64_t bytes_ = 0;
};

}  // namespace dlaunch::store
