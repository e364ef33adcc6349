#pragma once

namespace dlaunch {

/// An asymmetric pair of fences between processes, by membarrier(2): a process that is about to
/// sleep pays for both sides, and a publisher, which acts far more often, for none. The sleeper
/// stores, calls remote_barrier() and looks; the publisher stores and looks with only a compiler's
/// fence between. One of them then sees the other's store, as if both had a full fence.

/// Registers this process: its running threads execute a fence when any process calls
/// remote_barrier(). False where the kernel does not offer it, or a filter forbids it.
bool allow_remote_barriers() noexcept;
/// To be called only if all processes concerned are registered.
void remote_barrier() noexcept;

}  // namespace dlaunch
