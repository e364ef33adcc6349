#pragma once

#include "runtime/base/deadline.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/// Two ways to write what a process on another processor reads next, and the choice between them.
///
/// Data that is written as usual lies modified in the writer's cache. The reader fetches it from
/// there, and the next writer of that memory has to take it back, line by line. Between processors
/// that share a cache nothing is faster; between others, as those of two core complexes of an EPYC,
/// it is faster to *stream*: to write past the caches into memory, from where the reader's
/// processor reads ahead.
namespace dlaunch::transport {

/// Shorter data is not worth the choice.
constexpr std::size_t streamed_bytes_min = 2u << 10;

/// Chooses for one writer. Nothing says on which processors two processes run, today and in a
/// moment, so the writer times itself: where its readers are far, it waits long for memory that
/// they have read. Once in a while it writes a trial's length the other way, and as much the old
/// way, and goes on in the one that was faster. Only the second halves count: what the first ones
/// find in the caches is the other way's doing. Not thread-safe.
class StoreChoice {
 public:
  static constexpr std::size_t trial_bytes = 512u << 10;
  static constexpr std::size_t period_bytes = 64u << 20;

  struct Next {
    bool streams, is_timed;
  };
  /// For the next piece of data. If it is timed, note() is to hear of it.
  Next next(std::size_t bytes) noexcept {
    at_ += bytes;
    if (at_ < 2 * trial_bytes) {
      const bool is_old = at_ >= trial_bytes;
      return {streams_ == is_old, at_ % trial_bytes >= trial_bytes / 2};
    }
    if (is_trying_) decide();
    if (at_ >= period_bytes) {
      at_ = 0;
      is_trying_ = true;
    }
    return {streams_, false};
  }
  /// The fastest counts, since a thread that is interrupted says nothing of memory.
  void note(bool streamed, std::size_t bytes, Clock::duration took) noexcept {
    const double each = static_cast<double>(took.count()) / static_cast<double>(bytes);
    double& known = streamed ? streamed_ : cached_;
    if (known == unknown || each < known) known = each;
  }
  bool streams() const noexcept { return streams_; }

 private:
  /// Readers that are near take longer for what was streamed, which its writer does not see.
  static constexpr double margin = 1.5;
  static constexpr double unknown = -1;

  void decide() noexcept {
    if (cached_ != unknown && streamed_ != unknown) streams_ = streamed_ * margin < cached_;
    cached_ = streamed_ = unknown;
    is_trying_ = false;
  }

  std::size_t at_ = 0;  ///< Bytes since the trial began.
  bool is_trying_ = true;
  bool streams_ = false;
  double cached_ = unknown, streamed_ = unknown;  ///< Nanoseconds a byte in this trial.
};

/// Like memcpy, and complete before whatever this thread stores next. `to` is a multiple of 16.
/// Without such instructions it is memcpy.
inline void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
#if defined(__x86_64__)
  constexpr std::size_t line = 64;
  for (; bytes >= line; bytes -= line, to += line, from += line) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* place = reinterpret_cast<__m128i*>(to);
    const __m128i parts[] = {_mm_loadu_si128(source), _mm_loadu_si128(source + 1),
                             _mm_loadu_si128(source + 2), _mm_loadu_si128(source + 3)};
    for (int i = 0; i < 4; ++i) _mm_stream_si128(place + i, parts[i]);
  }
  _mm_sfence();
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

/// Copies in the way that the choice names.
inline void copy_for_reader(StoreChoice& choice, std::byte* to, const std::byte* from,
                            std::size_t bytes) noexcept {
  if (bytes < streamed_bytes_min || reinterpret_cast<std::uintptr_t>(to) % 16 != 0) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  const auto how = choice.next(bytes);
  const auto begin = how.is_timed ? Clock::now() : Clock::time_point{};
  if (how.streams) {
    copy_streamed(to, from, bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  if (how.is_timed) choice.note(how.streams, bytes, Clock::now() - begin);
}

}  // namespace dlaunch::transport
