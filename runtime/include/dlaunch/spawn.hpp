#pragma once

#include <dlaunch/world.hpp>

#include <concepts>
#include <functional>
#include <string>
#include <type_traits>

namespace dlaunch {

struct SpawnOptions {
  Clock::duration timeout = std::chrono::minutes(5);  ///< For the workers' World to form.
  /// After the first failure: how long the others have to notice it by themselves and say what it
  /// cost them, then, after SIGTERM, to end before SIGKILL.
  Clock::duration failure_grace = std::chrono::milliseconds(500);
  Clock::duration shutdown_timeout = std::chrono::seconds(5);
};

/// Why a spawn failed, by the rank that is to blame: the one that failed by itself, or that others
/// failed for: it returned before them, or did not come to a call. With Errc::mismatch also the
/// rank that made another call than most, where none of them failed for it.
class DLAUNCH_API SpawnError : public Error {
 public:
  SpawnError(Errc code, const std::string& sentence, int rank, int exit_code, int signal);
  ~SpawnError() override;

  int rank() const noexcept { return rank_; }
  /// -1 if a signal ended it, 0 if it did not fail itself.
  int exit_code() const noexcept { return exit_code_; }
  int signal() const noexcept { return signal_; }  ///< 0 if it exited.

 private:
  int rank_;
  int exit_code_;
  int signal_;
};

/// The untyped part of spawn: `program(rank)` gives a worker's exit code.
DLAUNCH_API void spawn_workers(int count, const std::function<int(int rank)>& program,
                               const SpawnOptions& options = {});

/// Starts `count` copies of this process by fork(2), runs `fn(rank, world)` or `fn(rank)` in each,
/// and returns when all have ended; a result of type int is the worker's exit code. The workers
/// are a World of their own; the one that takes none may join it by World::init("dlaunch://").
///
/// When a worker throws, exits with another code than 0 or is killed, the others are told, then
/// ended, and the call throws SpawnError. No worker outlives the call or this process.
///
/// Ranks that name different roots in a call may all return from it, with wrong data. When all have
/// ended and no call of that communicator failed for it, the call throws SpawnError{mismatch}, with
/// the rank that differs from most (without a majority the lower one) and both calls in its text.
/// The workers' shared memory tells it, so it is not told where they have none.
///
/// A forked process has the calling thread alone: call it before threads are started. Workers end
/// without running atexit functions. Throws Error{misuse} for a count out of 1..1024.
template <class Fn>
void spawn(int count, Fn&& fn, const SpawnOptions& options = {}) {
  const auto code_of = [](auto&& call) -> int {
    if constexpr (std::same_as<std::invoke_result_t<decltype(call)>, int>) {
      return call();
    } else {
      call();
      return 0;
    }
  };
  spawn_workers(
      count,
      [&](int rank) -> int {
        if constexpr (std::invocable<Fn&, int, const World&>) {
          const World world = World::init("dlaunch://", {.timeout = options.timeout});
          return code_of([&] { return fn(rank, world); });
        } else {
          return code_of([&] { return fn(rank); });
        }
      },
      options);
}

}  // namespace dlaunch
