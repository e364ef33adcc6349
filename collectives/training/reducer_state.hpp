#pragma once

#include "collectives/call/core/traffic.hpp"
#include "collectives/training/bucket_site.hpp"
#include "collectives/training/join_group.hpp"
#include "runtime/base/os/home_process.hpp"

#include <dlaunch/gradient_reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace dlaunch {

/// The announcements of an iteration: as a whole, with its collectives in their usual order; or, if
/// other joinables may take turns with it, in pieces.
struct IterationPart {
  static constexpr int whole = 0;
  static constexpr int beginning = 1;
  static constexpr int end = 2;
  static constexpr int first_bucket = 3;  ///< The others count from it.
};

/// The state that a reducer's calls and its hook share: the buckets, and the collectives of an
/// iteration, made by a rank with inputs or as a shadow.
struct __attribute__((visibility("hidden"))) GradientReducer::State {
  State(Communicator& communicator, int number, JoinGroup& group, std::vector<Parameter> parameters,
        std::vector<TensorView> buffers, ReducerSettings settings);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // ---- The collectives of an iteration, in their order. ----

  /// Begins an iteration: buckets in a new order if that is due, then the source's buffers. Returns
  /// whether gradients are summed. `joined`: there may be shadows.
  bool meet(bool joined, bool wants_sum);
  /// Puts a gradient, divided, into its bucket, and starts the sums of buckets that are complete.
  void put(std::size_t parameter);
  void put_zeros(std::size_t parameter);
  /// Starts the sums whose turn it is. In pieces, each is announced.
  void start_complete(bool in_pieces, const Joinable& reducer);
  /// Sums this bucket in place.
  Work start_sum(std::size_t bucket, std::span<std::byte> memory);
  /// Finds the parameters for which some rank had a gradient; with find_unused.
  void compare_used();
  /// Waits for the sums, and copies them to the gradients if `writes`.
  void take_out(bool writes);
  /// The shadow's share of all sums at once, which leaves the gradients as they are.
  void sum_zeros();
  /// Sends this rank's parameters and buffers to everyone.
  void end_alike(int root);

  // ---- What it has. ----

  const HomeProcess home;

  MarkedOptions options(Purpose purpose, std::uint32_t part = 0) const;
  std::string name_of(std::size_t parameter) const;
  bool is_provided(std::size_t parameter) const {
    return parameters[parameter].gradient.count == 0;
  }
  /// The gradient's place in the memory of the buckets.
  TensorView place_of(std::size_t parameter) const;
  std::span<std::byte> memory_of(std::size_t bucket, const training::BucketMemory& within) const {
    return {within.data() + begins[bucket], bytes[bucket]};
  }
  void begin_sums();
  void lay_out(std::vector<std::vector<std::size_t>> buckets);

  Communicator& communicator;
  const int number;  ///< Its number as a joinable.
  JoinGroup& group;
  const std::vector<Parameter> parameters;
  const std::vector<TensorView> buffers;
  const ReducerSettings settings;

  std::vector<std::vector<std::size_t>> plan;  ///< The parameters of each bucket.
  std::vector<std::size_t> begins, bytes;      ///< The place of each bucket in the memory.
  struct Place {
    std::size_t bucket = 0, offset = 0;
  };
  std::vector<Place> places;  ///< The places of the parameters' gradients.
  const std::unique_ptr<training::BucketSite> site;
  training::BucketMemory memory;
  training::BucketMemory zeros;  ///< Used in sums of a shadow that must not touch `memory`.

  bool syncs = true;                 ///< No NoSync lives.
  bool is_open = false;              ///< Between begin() and finish().
  bool sums = false;                 ///< Whether this iteration sums.
  bool in_pieces = false;            ///< Whether this iteration is announced in pieces.
  double factor = 1;                 ///< The factor that turns this iteration's sums into means.
  std::vector<bool> is_put;          ///< One for each parameter.
  std::vector<std::size_t> missing;  ///< The number of gradients that each bucket lacks.
  std::size_t next = 0;              ///< The next bucket to be summed.
  std::vector<std::uint8_t> used;    ///< Parameters used by this rank, later by any.
  std::vector<std::size_t> order;    ///< Order of becoming ready, in the first iteration that sums.
  bool rebuild_due = false;
  bool is_rebuilt = false;
  std::deque<JoinGroup::Words> words;  ///< The announcements that are under way.
  std::vector<Work> announcements;
  // The last members, so that everything they borrow outlives them.
  std::vector<Work> works;
  /// The previous iteration's sums, which a device may still have to do.
  std::vector<Work> before;

 private:
  int source(bool joined);
  void await_before();
  void rebuild(int root);
};

}  // namespace dlaunch
