#pragma once

namespace dlaunch {

/// An asymmetric pair of fences between processes, by membarrier(2): a process that is about to
/// sleep pays for both sides, and one that publishes, far more often, for none. If the sleeper
/// stores, calls remote_barrier() and looks, and the publisher stores and looks with nothing but a
/// compiler's fence between, one of them sees the other's store, as if both had a full fence.

/// This process takes part: its running threads execute a fence when any process calls
/// remote_barrier(). False where the kernel does not offer it, or a filter forbids it.
bool allow_remote_barriers() noexcept;
/// For those who have been told that all processes concerned allow it.
void remote_barrier() noexcept;

}  // namespace dlaunch
