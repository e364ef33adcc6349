#pragma once

#include "collectives/training/bucket_site.hpp"
#include "collectives/training/join_group.hpp"
#include "collectives/call/core/traffic.hpp"
#include "runtime/base/os/home_process.hpp"

#include <dlaunch/gradient_reducer.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

namespace dlaunch {

/// How an iteration is announced: as a whole, whose collectives follow in the order in which they
/// always come; or, where other joinables may take turns with it, in pieces.
struct IterationPart {
  static constexpr int whole = 0;
  static constexpr int beginning = 1;
  static constexpr int end = 2;
  static constexpr int first_bucket = 3;  ///< The others count from it.
};

/// What a reducer's calls and its hook have in common: the buckets, and the collectives of an
/// iteration, made by a rank with inputs or as a shadow.
struct __attribute__((visibility("hidden"))) GradientReducer::State {
  State(Communicator& communicator, int number, JoinGroup& group, std::vector<Parameter> parameters,
        std::vector<TensorView> buffers, ReducerSettings settings);
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State();

  // ---- The collectives of an iteration, in their order. ----

  /// Buckets in a new order where that is due, the source's buffers, whether gradients are summed:
  /// returned. `joined`: there may be shadows.
  bool meet(bool joined, bool wants_sum);
  /// The gradient, divided, into its bucket; the sums of buckets that are complete by it.
  void put(std::size_t parameter);
  void put_zeros(std::size_t parameter);
  /// Starts the sums whose turn it is. In pieces, each is announced.
  void start_complete(bool in_pieces, const Joinable& reducer);
  /// Sums this bucket in place.
  Work start_sum(std::size_t bucket, std::span<std::byte> memory);
  /// Which parameters somebody had a gradient for; with find_unused.
  void compare_used();
  /// After the sums: into the gradients, where `writes`.
  void take_out(bool writes);
  /// The shadow's share of all sums at once, which leaves the gradients as they are.
  void sum_zeros();
  /// Everyone's parameters and buffers become those of this rank.
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
  const int number;  ///< As a joinable.
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
  training::BucketMemory zeros;  ///< For sums of a shadow that may not touch `memory`.

  bool syncs = true;                 ///< No NoSync lives.
  bool is_open = false;              ///< Between begin() and finish().
  bool sums = false;                 ///< In this iteration.
  bool in_pieces = false;            ///< In this iteration.
  double factor = 1;                 ///< Makes sums means, in this iteration.
  std::vector<bool> is_put;          ///< One for each parameter.
  std::vector<std::size_t> missing;  ///< The number of gradients that each bucket lacks.
  std::size_t next = 0;              ///< Bucket to be summed.
  std::vector<std::uint8_t> used;    ///< Parameters: by this rank, then by any.
  std::vector<std::size_t> order;    ///< Became ready, in the first iteration that sums.
  bool rebuild_due = false;
  bool is_rebuilt = false;
  std::deque<JoinGroup::Words> words;  ///< The announcements that are under way.
  std::vector<Work> announcements;
  // The last members: whatever they borrow is there until they are done.
  std::vector<Work> works;
  std::vector<Work> before;  ///< The iteration before, which a device may still have to do.

 private:
  int source(bool joined);
  void await_before();
  void rebuild(int root);
};

}  // namespace dlaunch
