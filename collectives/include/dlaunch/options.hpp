#pragma once

#include <dlaunch/error.hpp>

namespace dlaunch {

/// The place of a call in the program, shown in messages.
struct CallSite {
  const char* file = "";
  int line = 0;
  const char* function = "";

  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                 const char* function = __builtin_FUNCTION()) noexcept {
    return {file, line, function};
  }
};

constexpr int any_source = -1;  ///< Receives, probes, match: from whichever rank comes first.
constexpr int any_tag = -1;     ///< The same: whatever the tag.
constexpr int tag_max = 0x7fffffff;

// What a call may be told beside its data: `comm.all_reduce(x, ReduceOp::max, {.timeout = 10s})`.
// Every field has a default that is right for most. Options that a call has not do not compile.

struct BarrierOptions;
struct MessageOptions;
struct ReduceOptions;

/// What every call may be told. An Options serves, too, where a call takes more.
struct Options {
  /// How long the call may take; 0: the communicator's default (five minutes unless set).
  Clock::duration timeout = Clock::duration::zero();
  /// CUDA buffers: the cudaStream_t on which the call is put, behind what is there; null: the
  /// legacy default one, and blocking calls wait until it is done.
  void* cuda_stream = nullptr;
  /// The place of this call in the program. Right by itself if the options are written in the call.
  CallSite site = CallSite::here();

  constexpr operator BarrierOptions() const noexcept;
  constexpr operator MessageOptions() const noexcept;
  constexpr operator ReduceOptions() const noexcept;
};

/// What barrier and start_barrier may be told.
struct BarrierOptions {
  Clock::duration timeout = Clock::duration::zero();
  void* cuda_stream = nullptr;
  /// First flush stdout and stderr and wait until the launcher has read them, so that what was
  /// printed before the barrier appears before what is printed after it, on any rank.
  bool ordered_output = false;
  CallSite site = CallSite::here();

  constexpr operator Options() const noexcept { return {timeout, cuda_stream, site}; }
};

/// What calls that reduce may be told.
struct ReduceOptions {
  Clock::duration timeout = Clock::duration::zero();
  void* cuda_stream = nullptr;
  /// Lets mean divide integers and drop the fraction (towards zero) instead of throwing. Not with
  /// CUDA buffers: NCCL does not add them in a wider type.
  bool truncate_mean = false;
  CallSite site = CallSite::here();

  constexpr operator Options() const noexcept { return {timeout, cuda_stream, site}; }
};

/// What point-to-point calls may be told.
struct MessageOptions {
  Clock::duration timeout = Clock::duration::zero();
  /// Tells messages between two ranks apart, 0..tag_max. any_tag to receive.
  int tag = 0;
  void* cuda_stream = nullptr;
  CallSite site = CallSite::here();

  constexpr operator Options() const noexcept { return {timeout, cuda_stream, site}; }
};

constexpr Options::operator BarrierOptions() const noexcept {
  return {timeout, cuda_stream, false, site};
}
constexpr Options::operator MessageOptions() const noexcept {
  return {timeout, 0, cuda_stream, site};
}
constexpr Options::operator ReduceOptions() const noexcept {
  return {timeout, cuda_stream, false, site};
}

}  // namespace dlaunch
