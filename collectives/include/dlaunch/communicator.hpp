#pragma once

#include <dlaunch/buffer.hpp>
#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>
#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>
#include <dlaunch/work.hpp>
#include <dlaunch/world.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

/// The place of a call in the program, shown in messages.
struct CallSite {
  const char* file = "";
  int line = 0;
  const char* function = "";

  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE(),
                                 const char* function = __builtin_FUNCTION()) noexcept {
    return {file, line, function};
  }
};

constexpr int any_source = -1;  ///< recv, irecv, probe: from whichever rank comes first.
constexpr int any_tag = -1;     ///< recv, irecv, probe: whatever the tag.
constexpr int tag_max = 0x7fffffff;

/// What a call may be told beside its data; every field has a default that is right for most:
/// `comm.all_reduce(x, ReduceOp::max, {.timeout = 10s})`.
struct Options {
  /// How long the call may take; 0: the communicator's default (five minutes unless set).
  Clock::duration timeout = Clock::duration::zero();
  /// Point-to-point only: tells messages between two ranks apart, 0..tag_max. any_tag to receive.
  int tag = 0;
  /// CUDA buffers: the cudaStream_t on which the call is put, behind what is there; null: the
  /// legacy default one, and blocking calls wait until it is done.
  void* cuda_stream = nullptr;
  /// Lets mean divide integers and drop the fraction (towards zero) instead of throwing. Not with
  /// CUDA buffers: NCCL does not add them in a wider type.
  bool truncate_mean = false;
  /// barrier only: first flush stdout and stderr and wait until the launcher has read them, so that
  /// what was printed before the barrier appears before what is printed after it, on any rank.
  bool ordered_output = true;
  /// Collectives of a joinable: what Joinable::traffic gives. Ranks must agree on it.
  std::uint32_t traffic = 0;
  /// The place of this call in the program. Right by itself if the options are written in the call.
  CallSite site = CallSite::here();
};

/// What a received message was.
struct Received {
  int source = any_source;
  int tag = 0;
  DType dtype = DType::u8;
  std::size_t count = 0;  ///< Elements.
  bool operator==(const Received&) const = default;
};

/// One message of a batch.
struct Transfer {
  static Transfer send(ConstTensorView data, int to, int tag = 0) {
    return {data, {}, to, tag, true};
  }
  static Transfer recv(TensorView data, int from, int tag = 0) {
    return {{}, data, from, tag, false};
  }
  ConstTensorView out;
  TensorView in;
  int peer = 0;
  int tag = 0;
  bool is_send = true;
};

class JoinGroup;
class Tree;

/// A group of ranks that make the same calls in the same order.
///
/// Threads: a communicator is for one thread at a time; abort() alone may come from any. Several
/// threads may each use one of their own, also where those were made from each other by split,
/// duplicate and group. After a call was started, threads of the library move it, and call the
/// program's custom reductions.
///
/// Processes: a forked child has no part in its parent's communicators. Every call there is
/// Error{misuse}; that it ends, or destroys its copies, is noticed by nobody.
///
/// Order: a communicator's collectives run in the order in which they were called or started, one
/// at a time. A blocking one waits for those started before it, then runs on the caller's thread.
/// Messages go beside them, in no order with collectives.
///
/// Buffers are read and written in place, stay the caller's, and may not overlap unless a call says
/// so. A variable is a buffer of one element: `float loss; comm.all_reduce(loss);`. Empty buffers
/// are fine. In world of one every call works and needs no network. Counts are in elements, ranks
/// are this communicator's own (0..size()-1).
///
/// Errors: every rank's call carries what it is (name, sequence number, dtype, count, root,
/// reduction); ranks that disagree all get Error{mismatch} that shows both calls, and so do ranks
/// that wait for each other in different calls, where no other thread can end that. A wrong
/// argument throws Error{misuse} before anything is sent, and the ranks that wait for this one get
/// Error{mismatch}. A dead peer: Error{peer_lost} with its rank and the cause. A call that takes
/// longer than its timeout: Error{timeout} with the ranks that did not come and what they were last
/// seen doing. abort(): Error{aborted}.
/// CUDA buffers go by NCCL, on the stream that Options::cuda_stream names: a blocking call with a
/// stream returns when it is on it, one without when it is done, and a started one's Work is
/// complete when it is done. Both buffers of a call lie on one device, always the same, without
/// strides. The first such call is a collective; all ranks bring NCCL up in it. Error{unsupported}
/// says what is not there: a library, an element type, an operation, tags. A stream that is being
/// captured gets the call and nothing else; its Work never waits. Ranks that disagree are found
/// when their calls are on their streams already, which then are not waited for: NCCL is aborted,
/// also where the program waits in CUDA itself.
/// The first error (save misuse and unsupported) sticks: every later call throws it again, here and
/// on the other ranks; make a new communicator, or end. What the buffers hold after an error is not
/// defined.
class DLAUNCH_API Communicator {
 public:
  /// All ranks of `world`. Nothing is sent: connections are made when first needed. Ranks that make
  /// several communicators from one world make them in the same order. `name` is for messages.
  explicit Communicator(const World& world, std::string_view name = "world");
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  /// Ends what is still under way with Errc::aborted; waits for no rank, but for a custom reduction
  /// that is running.
  ~Communicator();

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  /// For calls whose options give none. More than zero.
  void set_timeout(Clock::duration timeout);
  Clock::duration timeout() const noexcept;
  /// How long calls of this communicator, and of those made from it later, may wait before the
  /// launcher says which ranks wait and what the absent ones do; the calls go on waiting. Zero:
  /// it never does. Unless set it is the launcher's --stuck-after. If ranks set it differently, the
  /// first to have waited for long enough counts. Not negative.
  void set_stuck_after(Clock::duration stuck_after);

  /// Memory for this rank's part of collectives, the fastest there is for this communicator's
  /// ranks; see SharedBuffer. Needs no other rank. Throws std::bad_alloc.
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes);
  /// The same on a CUDA device. Throws Error{unsupported} where CUDA buffers are not.
  [[nodiscard]] DeviceBuffer allocate_device(std::size_t bytes, int device);
  /// Called by all ranks, each with its device: NCCL comes up now, and not in the first collective
  /// with CUDA buffers; so that may be captured, and a message be the first call. If NCCL is up, it
  /// is only a barrier. Waits for the default stream, and cannot be captured. Throws
  /// Error{unsupported} where CUDA buffers are not.
  void prepare_device(int device, const Options& options = {});

  // ---- Groups. Each takes part of all ranks of this communicator unless it says otherwise. ----

  /// The ranks that give the same colour, ordered by `key`, then by rank. No colour: takes part,
  /// gets none. Colours are not negative.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0,
                                                  const Options& options = {});
  /// The ranks listed, in that order. Called by all ranks, with the same list; those not listed get
  /// none. A rank listed twice or out of range is misuse; different lists are a mismatch.
  [[nodiscard]] std::optional<Communicator> group(std::span<const int> ranks,
                                                  const Options& options = {});
  /// The same, called by the listed ranks alone; the others need not know.
  [[nodiscard]] Communicator group_of_members(std::span<const int> ranks,
                                              const Options& options = {});
  /// The same ranks with traffic of their own.
  [[nodiscard]] Communicator duplicate(const Options& options = {});
  /// This communicator's ranks, in its order, as ranks of the world.
  const std::vector<int>& world_ranks() const noexcept;
  /// This communicator's `rank` as a rank of `other`; nullopt if it is not in it.
  [[nodiscard]] std::optional<int> translate(int rank, const Communicator& other) const;

  // ---- Collectives: every rank calls, in the same order. ----

  /// Returns when all ranks have called. With Options::ordered_output (the default) what every rank
  /// printed before comes out before what any prints after. With Options::cuda_stream it returns at
  /// once, and what is put on the stream from then on comes after what every rank had put on its
  /// own before; what was printed is not waited for. The device was prepared, or used.
  void barrier(const Options& options = {});
  /// Everyone's `inout` becomes that of `root`. Same count and dtype on all ranks.
  void broadcast(TensorView inout, int root, const Options& options = {});
  /// `out` of `root` becomes the reduction of everyone's `in`. The others' `out` is neither read
  /// nor written and may be empty; their `in` stays untouched. On the root both may be the same
  /// memory.
  void reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction = {},
              const Options& options = {});
  /// Everyone's `inout` becomes the reduction of all.
  void all_reduce(TensorView inout, const Reduction& reduction = {}, const Options& options = {});
  /// `out` (size() * in.count elements) becomes everyone's `in`, in rank order.
  void all_gather(ConstTensorView in, TensorView out, const Options& options = {});
  /// The same with counts[r] elements from rank r; counts are the same on all ranks.
  void all_gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                    const Options& options = {});
  /// all_gather whose result is written on `root` alone; the others' `out` may be empty.
  void gather(ConstTensorView in, TensorView out, int root, const Options& options = {});
  /// counts[r] elements from rank r; only the root's counts are read, and each rank's in.count must
  /// be its entry.
  void gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts, int root,
                const Options& options = {});
  /// Rank r's `out` becomes the r-th part of the root's `in` (size() * out.count elements). The
  /// others' `in` may be empty.
  void scatter(ConstTensorView in, TensorView out, int root, const Options& options = {});
  void scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts, int root,
                 const Options& options = {});
  /// The reduction of everyone's `in` (size() * out.count elements); rank r gets its r-th part.
  void reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction = {},
                      const Options& options = {});
  /// The same with a part of counts[r] elements for rank r; counts are the same on all ranks.
  void reduce_scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                        const Reduction& reduction = {}, const Options& options = {});
  /// `in` and `out` are size() equal parts; part j of rank i goes to part i of rank j.
  void all_to_all(ConstTensorView in, TensorView out, const Options& options = {});
  /// in_counts[j] elements go to rank j, out_counts[i] come from rank i, packed in rank order.
  void all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts, TensorView out,
                    std::span<const std::size_t> out_counts, const Options& options = {});

  // ---- Their started forms: the same meaning, in the order of starting; see Work. ----
  // With Options::ordered_output start_barrier flushes when it is called, and waits until the
  // launcher has read when its turn comes. After 16384 that are not complete, starting waits.

  Work start_barrier(const Options& options = {});
  Work start_broadcast(TensorView inout, int root, const Options& options = {});
  Work start_reduce(ConstTensorView in, TensorView out, int root, const Reduction& reduction = {},
                    const Options& options = {});
  Work start_all_reduce(TensorView inout, const Reduction& reduction = {},
                        const Options& options = {});
  Work start_all_gather(ConstTensorView in, TensorView out, const Options& options = {});
  Work start_all_gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                          const Options& options = {});
  Work start_gather(ConstTensorView in, TensorView out, int root, const Options& options = {});
  Work start_gather_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                      int root, const Options& options = {});
  Work start_scatter(ConstTensorView in, TensorView out, int root, const Options& options = {});
  Work start_scatter_v(ConstTensorView in, TensorView out, std::span<const std::size_t> counts,
                       int root, const Options& options = {});
  Work start_reduce_scatter(ConstTensorView in, TensorView out, const Reduction& reduction = {},
                            const Options& options = {});
  Work start_reduce_scatter_v(ConstTensorView in, TensorView out,
                              std::span<const std::size_t> counts, const Reduction& reduction = {},
                              const Options& options = {});
  Work start_all_to_all(ConstTensorView in, TensorView out, const Options& options = {});
  Work start_all_to_all_v(ConstTensorView in, std::span<const std::size_t> in_counts,
                          TensorView out, std::span<const std::size_t> out_counts,
                          const Options& options = {});

  // ---- Point to point. Messages between two ranks with one tag arrive in the order sent. ----

  /// Returns when `data` may be used again. A message that fits the kernel's socket buffer does not
  /// wait for the receiver; a larger one may. Sending to oneself is buffered.
  void send(ConstTensorView data, int to, const Options& options = {});
  /// Receives exactly data.count elements of its dtype; anything else is a mismatch on both sides.
  Received recv(TensorView data, int from, const Options& options = {});
  Work isend(ConstTensorView data, int to, const Options& options = {});
  Work irecv(TensorView data, int from, const Options& options = {});
  /// Starts all before it waits for any, so that exchanges cannot block each other.
  [[nodiscard]] std::vector<Work> start_batch(std::span<const Transfer> transfers,
                                              const Options& options = {});
  void batch(std::span<const Transfer> transfers, const Options& options = {});
  /// Waits until a message that a recv with these arguments would take has begun to arrive.
  [[nodiscard]] Received probe(int from, const Options& options = {});
  /// The same without waiting.
  [[nodiscard]] std::optional<Received> try_probe(int from, const Options& options = {});

  // ---- Structured values, see tree.hpp: dictionaries, lists, tensors, numbers, text. ----

  /// Everyone gets root's value, shape and types included; `value` is read on the root alone.
  [[nodiscard]] Tree broadcast_object(const Tree& value, int root, const Options& options = {});
  /// Everyone's value, in rank order, each as it is.
  [[nodiscard]] std::vector<Tree> all_gather_objects(const Tree& value,
                                                     const Options& options = {});
  /// One tree of the same structure whose tensors got a new leading axis over the ranks; numbers
  /// and booleans count as tensors of one element, text and null become lists. Also in world of
  /// one. Structures that differ: Error{mismatch} with the first path that does.
  [[nodiscard]] Tree all_gather_stacked(const Tree& value, const Options& options = {});
  /// One tree of the same structure whose tensors and numbers are reduced over the ranks. Text and
  /// null must be the same everywhere.
  [[nodiscard]] Tree all_reduce_object(const Tree& value, const Reduction& reduction = {},
                                       const Options& options = {});
  /// Root's result has everyone's value, the others' is empty.
  [[nodiscard]] std::vector<Tree> gather_objects(const Tree& value, int root,
                                                 const Options& options = {});
  /// values[r] of root goes to rank r; read on the root alone.
  [[nodiscard]] Tree scatter_objects(std::span<const Tree> values, int root,
                                     const Options& options = {});
  void send_object(const Tree& value, int to, const Options& options = {});
  [[nodiscard]] Tree recv_object(int from, const Options& options = {});

  // ---- Ending, and going on without the dead. ----

  /// From any thread, any number of times, waits for nobody: here every pending and later call
  /// throws Error{aborted}; the others get Error{aborted} or Error{peer_lost}. All are told which
  /// rank called it, and where.
  void abort(const CallSite& site = CallSite::here()) noexcept;
  // After User-Level Failure Mitigation (Bland et al., "Post-failure recovery of MPI communication
  // capability", IJHPCA 2013). A death breaks every communicator that the dead rank was part of;
  // those who live revoke it, so that nobody waits in it, then shrink it and go on. The launcher
  // leaves them alone with --on-failure continue. docs/collectives.md has the pattern.

  /// Makes every call on every rank of this communicator throw Error{revoked}, those that wait
  /// included, so that all can meet in shrink. Ranks on which an error sticks already keep that
  /// one. Waits for nobody. A rank that revokes and dies at once may not have told all.
  void revoke();
  /// Agrees on the bitwise and of everyone's `flags` among the ranks that live, despite losses, and
  /// on a broken or revoked communicator, too; not after abort(). Every living rank calls it, in
  /// the same order with shrink. All who get an answer get the same one; an error (timeout, naming
  /// who neither came nor is known to be lost; mismatch) all get alike. The flags of a rank that
  /// died meanwhile may count or not. Costs two entries in the store for each rank, and some 5 ms.
  [[nodiscard]] std::uint32_t agree(std::uint32_t flags, const Options& options = {});
  /// A communicator of the ranks that live and call this, in their old order, with connections and
  /// shared memory of its own: nothing that was under way in the old one reaches it. The others are
  /// as in agree. A rank that was taken for lost and lives gets Error{peer_lost}. One more death
  /// meanwhile may go unnoticed here, and breaks the new communicator's first call: shrink that one
  /// then.
  [[nodiscard]] Communicator shrink(const Options& options = {});

 private:
  friend class DeviceWork;
  friend class JoinGroup;
  friend class MessageWork;
  friend class TableInUse;
  struct State;
  explicit Communicator(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch
