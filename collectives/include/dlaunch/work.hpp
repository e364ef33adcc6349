#pragma once

#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>

#include <memory>

namespace dlaunch {

struct WorkState;

/// A call that was started and may not be complete. The buffers it was given are borrowed until it
/// is, so the destructor waits for it, as std::jthread joins. Movable; for the thread that uses
/// its communicator. A default-made or moved-from Work is complete.
///
/// Progress is made inside calls on the communicator and on its works, not behind the program's
/// back: point-to-point messages move whenever any of them runs; a started collective runs, in the
/// order in which they were started, at the latest when it is waited for.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  Work() noexcept;
  explicit Work(std::shared_ptr<WorkState> state) noexcept;
  Work(Work &&) noexcept;
  Work& operator=(Work&& other) noexcept;  ///< Waits for what it held, as the destructor does.
  /// Waits until complete. An error is not lost: it sticks to the communicator and is thrown by its
  /// next call.
  ~Work();

  /// Blocks the calling thread until complete, wherever the buffers lie. Throws what the blocking
  /// form of the call throws; calling it again does nothing, or throws the same again.
  void wait();
  /// True when complete, also when it failed (wait() then throws). Makes what progress is possible
  /// without waiting for a peer; for a started collective it may have to wait for peers, bounded by
  /// the call's timeout.
  bool test();
  /// True when complete; makes no progress.
  bool done() const noexcept;
  /// Lets `cuda_stream` (a cudaStream_t) wait for the result while the host goes on. For host
  /// buffers: Error{unsupported}; call wait().
  void order_before(void* cuda_stream);

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace dlaunch
