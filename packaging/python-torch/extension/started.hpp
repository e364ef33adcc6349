#pragma once

#include "packaging/python-torch/extension/tensors.hpp"

#include <dlaunch/work.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>

namespace dlaunch::torch_backend {

/// The first thing that went wrong with a group's calls, save what a later call is not concerned
/// by.
enum class Failure { none, timeout, remote, other };

/// A call of torch's that was started: one call of the library's or several, and what became of
/// them. Its group holds it until it is complete, so the program may drop its Work. Whoever drops
/// the last reference may have to take Python's lock for its tensors, so nobody does with the
/// group's turn, which threads with that lock wait for.
class Started {
 public:
  enum class Kind { collective, send, receive };
  Started(Kind kind, std::vector<at::Tensor> held, Copies copies,
          std::shared_ptr<std::atomic<Failure>> failure)
      : kind(kind),
        held_(std::move(held)),
        copies_(std::move(copies)),
        failure_(std::move(failure)) {}

  const Kind kind;
  /// The library's works, for the thread that has the group's turn.
  std::vector<Work> works;

  /// For any thread.
  bool is_complete() const noexcept { return complete_.load(std::memory_order_acquire); }
  /// Null where it succeeded; once it is complete.
  std::exception_ptr error() const noexcept { return error_; }
  int source() const noexcept { return source_; }

  /// Moves what can be moved within `limit`; true where it is complete then. With the turn.
  bool advance(Clock::duration limit);
  /// Complete, as far as that is known without moving anything. With the turn.
  bool look();
  /// Waits for as long as its timeout allows. With the turn.
  void finish();
  /// Calls `then` on a thread of the library's when it is complete; for collectives. With the turn.
  void on_complete(std::function<void()> then);

  /// Complete from now on; the first to say so counts.
  void end(std::exception_ptr error, int source = -1);

 private:
  void settle();
  void copy_results() noexcept;

  std::vector<at::Tensor> held_;
  Copies copies_;                                  ///< Made when it has succeeded.
  std::shared_ptr<std::atomic<Failure>> failure_;  ///< Its group's.
  std::size_t next_ = 0;  ///< Of the works, the first that may not be complete.
  std::mutex mutex_;      ///< Guards the ending.
  std::exception_ptr error_;
  int source_ = -1;
  std::atomic<bool> complete_{false};
};

}  // namespace dlaunch::torch_backend
