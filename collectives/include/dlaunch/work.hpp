#pragma once

#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>
#include <dlaunch/message.hpp>

#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace dlaunch {

struct WorkState;

/// A call that was started and may not be complete. The buffers it was given are borrowed until it
/// is, so the destructor waits, as std::jthread joins; counts, lists of views and options are
/// copied. For the thread that uses its communicator. Movable; a default-made or moved-from one is
/// complete.
///
/// It goes on while the program computes, and needs no call for it. Started collectives of one
/// communicator run in the order in which they were started: on the thread that waits for them or
/// tests them, and after some hundred microseconds without one on a thread of the communicator's;
/// messages are moved by whichever thread is in a call, else by one thread that all communicators
/// made from each other share. Neither uses a core while nothing moves. Communicators do not wait
/// for each other: ranks may start on several of them in different orders.
///
/// Calls with CUDA buffers are on their stream when starting returns. One that was captured is
/// complete at once.
///
/// A started call that fails is complete, and wait() throws the error, which sticks to the
/// communicator as a blocking call's does. A collective's timeout counts from its turn, a message's
/// from wait(). Once the communicator was destroyed every Work of it is complete, with
/// Errc::aborted if it was not before.
class [[nodiscard, gnu::visibility("default")]] Work {
 public:
  Work() noexcept = default;
  explicit Work(std::shared_ptr<WorkState> state) noexcept : state_(std::move(state)) {}
  Work(Work &&) noexcept = default;
  /// Waits for what it held, as the destructor does.
  Work& operator=(Work&& other) noexcept {
    if (this == &other) return *this;
    if (state_) finish();
    state_ = std::move(other.state_);
    return *this;
  }
  /// Waits until complete, as wait() does, for as long as the call's timeout allows, and throws
  /// nothing. An error is not lost: it sticks to the communicator and is thrown by its next call
  /// (misuse and unsupported, which do not stick, are lost). While an exception is under way, a
  /// receive for which no message has come is taken back, as by cancel(), instead of waited for.
  /// In a forked child it waits for nobody.
  ~Work() {
    if (state_) finish();
  }

  /// Blocks the calling thread until complete, wherever the buffers lie. Throws what the blocking
  /// form of the call throws; calling it again does nothing, or throws the same again.
  void wait();
  /// The same for `limit` at most; zero or less only looks, as test() does. True when complete,
  /// also when it failed (wait() then throws the error); false when it goes on: that fails no call.
  /// Error{misuse} in a completion of the same communicator, and in a forked child.
  [[nodiscard]] bool wait_for(Clock::duration limit);
  /// True when complete, also when it failed (wait() then throws the error). Moves what can be
  /// moved at once, and waits for nobody; where ranks share processors the others have this one for
  /// a turn.
  bool test();
  /// Made without a call, or moved from.
  [[nodiscard]] bool is_empty() const noexcept { return state_ == nullptr; }
  /// The same as test(), but moves nothing: a few instructions where there is nothing new.
  [[nodiscard]] bool done() const noexcept;
  /// What wait() would throw: null while it goes on (test() is false), and when it succeeded.
  [[nodiscard]] std::exception_ptr error();

  /// What the message was that an irecv has received, or would not take because it is too long, or
  /// that a start_probe has found. Gives nullopt where it goes on, has failed otherwise, or is
  /// neither.
  [[nodiscard]] std::optional<Received> received() const;
  /// Takes back a receive or a probe that no message has come for. True when it is taken back:
  /// wait() throws Error{aborted} from then on, which does not stick. False when it is complete, or
  /// a message is on its way into its buffer. Messages find the next receive. Error{unsupported}
  /// for sends and collectives.
  bool cancel();

  /// What on_complete calls; `error` is null if the call succeeded, else what wait() throws.
  using Completion = std::function<void(std::exception_ptr error)>;
  /// Calls `completion` once, when the call has ended, however it has: also by an abort, a lost
  /// peer, or the end of its communicator. Several are called in the order in which they were set.
  /// For started collectives with host buffers; else Error{unsupported}: a message is looked at by
  /// test() or wait_any(), and a stream has its own callbacks.
  ///
  /// Thread: the one that ended the call. That is the communicator's own, or one that waits for
  /// this call or a later one, or tests it, or the one that destroys the communicator. If the call
  /// is complete already it is this thread, before on_complete returns.
  ///
  /// Order: wait() returns, done() becomes true, and the communicator's next collective begins only
  /// after it has returned and was destroyed, so what it borrows need not outlive the Work.
  ///
  /// It may call anything but what waits for this communicator's started calls, its blocking
  /// collectives included: Error{misuse}. What it starts there is one of the rank's calls like any
  /// other: on all ranks in the same order, and from one thread at a time. It does not throw: that
  /// ends the program (std::terminate).
  void on_complete(Completion completion);
  /// Lets `cuda_stream` (a cudaStream_t) wait for the result while the host goes on. For host
  /// buffers: Error{unsupported}; call wait().
  void order_before(void* cuda_stream);

 private:
  friend struct WorkState;
  void finish() noexcept;

  std::shared_ptr<WorkState> state_;
};

/// Waits until one of `works` is complete, also when it failed (its wait() then throws the error),
/// and gives its index: the lowest, if there are several. Empty ones and null pointers are passed
/// over. Gives nullopt where there are no others, or `limit` has passed, which fails no call. They
/// may be of several communicators. The end of a message is noticed at once where all are messages
/// of communicators that were made from each other; else each is looked at some thousand times a
/// second.
[[nodiscard]] DLAUNCH_API std::optional<std::size_t> wait_any(std::span<Work* const> works,
                                                              Clock::duration limit);
[[nodiscard]] DLAUNCH_API std::optional<std::size_t> wait_any(std::span<Work> works,
                                                              Clock::duration limit);
/// The same, and gives all that are complete by then, in their order; none where wait_any gives
/// nullopt. Those that were dealt with are to be emptied (`works[i] = {}`), or they come again.
[[nodiscard]] DLAUNCH_API std::vector<std::size_t> wait_some(std::span<Work* const> works,
                                                             Clock::duration limit);
[[nodiscard]] DLAUNCH_API std::vector<std::size_t> wait_some(std::span<Work> works,
                                                             Clock::duration limit);
/// wait_any that waits for nothing, as Work::test.
[[nodiscard]] DLAUNCH_API std::optional<std::size_t> test_any(std::span<Work* const> works);
[[nodiscard]] DLAUNCH_API std::optional<std::size_t> test_any(std::span<Work> works);
/// True when all are complete, also when they failed. Tests each, and waits for nothing.
[[nodiscard]] DLAUNCH_API bool test_all(std::span<Work* const> works);
[[nodiscard]] DLAUNCH_API bool test_all(std::span<Work> works);
/// Waits for all, whatever becomes of any; then throws the error of the first that failed. Empty
/// ones and null pointers are passed over.
DLAUNCH_API void wait_all(std::span<Work* const> works);
DLAUNCH_API void wait_all(std::span<Work> works);

}  // namespace dlaunch
