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
/// It goes on while the program computes, and needs no call for it. Started collectives of one
/// communicator run one after the other in the order in which they were started, on a thread that
/// the communicator has from the first one on; messages are moved by whichever thread is in a call,
/// else by one thread that all communicators made from each other share. Neither uses a core while
/// nothing moves. Communicators do not wait for each other: ranks may start on several of them in
/// different orders.
///
/// Calls with CUDA buffers are on their stream when starting returns. One that was captured is
/// complete at once.
///
/// A started call that fails is complete, and its wait() throws; the error sticks to the
/// communicator as a blocking call's does. A collective's timeout counts from its turn, a message's
/// from wait(). Once the communicator was destroyed every Work of it is complete, with
/// Errc::aborted if it was not before.
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
  /// True when complete, also when it failed (wait() then throws). Waits for nobody; for a message
  /// it also moves what can be moved at once.
  bool test();
  /// The same, and never sleeps: a few instructions where there is nothing new.
  [[nodiscard]] bool done() const noexcept;
  /// Lets `cuda_stream` (a cudaStream_t) wait for the result while the host goes on. For host
  /// buffers: Error{unsupported}; call wait().
  void order_before(void* cuda_stream);

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace dlaunch
