#pragma once

#include <dlaunch/buffer.hpp>
#include <dlaunch/communicator.hpp>
#include <dlaunch/export.hpp>
#include <dlaunch/join.hpp>
#include <dlaunch/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace dlaunch {

/// A parameter that ranks train together, and its gradient. Views are borrowed for the reducer's
/// life.
struct Parameter {
  std::string name;  ///< For messages.
  TensorView value;
  /// Has the same dtype and count. Without elements (the default) the reducer provides it in memory
  /// that all_reduce works on directly; see GradientReducer::gradient.
  TensorView gradient = {};
  /// Its product is value.count; empty: one axis.
  std::vector<std::int64_t> shape = {};
};

struct ReducerSettings {
  /// A bucket is full when it has this many bytes: the first one, whose sum begins first, and the
  /// others.
  std::size_t first_bucket_bytes = std::size_t{1} << 20;
  std::size_t bucket_bytes = std::size_t{25} << 20;
  /// Parameters may be without a gradient in an iteration, on some ranks or on all. Then their used
  /// ones are compared at the end of each. Else finish() without one of them is an error.
  bool find_unused = false;
  /// Buckets are made anew after the first iteration, in the order in which its gradients became
  /// ready.
  bool rebuild_buckets = true;
  /// For parameters on a CUDA device: the stream on which their gradients are computed and used. It
  /// outlives the reducer.
  void* cuda_stream = nullptr;
};

/// Replaces every rank's gradients by their mean, while the program still computes.
///
///     dlaunch::GradientReducer reducer(comm, parameters);
///     for (...) {
///       reducer.begin();
///       for (each parameter i, as its gradient is computed) reducer.ready(i);
///       reducer.finish();     // now gradients hold the mean
///       step();
///     }
///
/// A gradient that is ready is divided by the number of ranks and laid into its bucket; when all of
/// a bucket's are, its sum is started (Communicator::start_all_reduce). Buckets are summed in the
/// same order on all ranks, whatever the order of ready(). Sums have the same bits on all ranks.
///
/// Made by all ranks, together: compares the parameters, and gives all ranks rank 0's values. Each
/// iteration begins with rank 0's buffers (under a Join: those of the highest rank with inputs).
/// Parameters are floating-point or complex, gradients and buffers may be strided, all in host
/// memory. For the thread that uses the communicator, which outlives it; destroying the reducer
/// waits for what was started.
///
/// Or all on one CUDA device: then floating-point without strides, and ready() means that the
/// gradient is complete once what is on ReducerSettings::cuda_stream is done. Sums run on a stream
/// of their own. finish() returns at once; what is put on the stream from then on finds the mean.
/// begin() waits for the sums of the iteration before, and so throws what became of them.
///
/// Errors: Error{mismatch} on all ranks where their parameters differ, with the first that does.
/// Error{misuse} for a wrong order of calls; other ranks then get Error{mismatch} that tells so,
/// and the communicator is broken. Else as the communicator's collectives: what a call here does
/// with other ranks is told with that call's place in the program.
class DLAUNCH_API GradientReducer final : public Joinable {
 public:
  /// `buffers` are what ranks have beside parameters, and shall have in common: running means.
  GradientReducer(Communicator& communicator, std::vector<Parameter> parameters,
                  std::vector<TensorView> buffers = {}, ReducerSettings settings = {},
                  const CallSite& site = CallSite::here());
  ~GradientReducer() override;

  /// Before the forward pass.
  void begin(const CallSite& site = CallSite::here());
  /// The gradient of parameters[index] is complete. In any order, each of them once.
  void ready(std::size_t index, const CallSite& site = CallSite::here());
  /// After the backward pass: returns when all gradients hold the mean. With find_unused,
  /// parameters that were not ready count as zeros here, and keep their gradient if no rank had
  /// one.
  void finish(const CallSite& site = CallSite::here());

  /// While it lives, iterations that begin sum nothing: gradients stay each rank's own, to be
  /// accumulated. The same on all ranks.
  class DLAUNCH_API NoSync {
   public:
    explicit NoSync(GradientReducer& reducer) noexcept;
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync();

   private:
    GradientReducer& reducer_;
    bool before_;
  };
  [[nodiscard]] NoSync no_sync() noexcept { return NoSync(*this); }

  /// The gradient of parameters[index]: the caller's view, or the memory the reducer provides,
  /// which begins as zeros. That memory moves once, with its values, when buckets are made anew: in
  /// the begin() after the first iteration that summed. If find_unused finds it unused on this
  /// rank, finish() overwrites it.
  TensorView gradient(std::size_t index) const;
  /// Which parameters are in each bucket, in the order of summing.
  const std::vector<std::vector<std::size_t>>& buckets() const noexcept;

  std::unique_ptr<JoinHook> join_hook() override;

 private:
  class Shadow;
  struct State;
  /// Throws Error{misuse}; the other ranks are told.
  [[noreturn]] void refuse(const CallSite& site, const std::string& sentence);
  std::unique_ptr<State> state_;
};

}  // namespace dlaunch
