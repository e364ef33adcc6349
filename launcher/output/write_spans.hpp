#pragma once

#include <dlaunch/error.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dlaunch::launcher {

/// Remembers roughly when each part of a log was written: new parts to a second, old ones to an
/// eighth of their age, so that a bounded number of spans is enough. Pure; not thread-safe.
class WriteSpans {
 public:
  static constexpr std::size_t spans_max = 256;

  /// Bytes written one after the other, without long pauses.
  struct Span {
    Clock::time_point first, last;
    std::uint64_t begin = 0;  ///< Bytes before it.
  };

  void add(std::size_t bytes, Clock::time_point now);
  /// In order; each ends where the next one begins.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  void merge(Clock::time_point now);

  std::vector<Span> spans_;
  std::uint64_t total_ = 0;
};

}  // namespace dlaunch::launcher
