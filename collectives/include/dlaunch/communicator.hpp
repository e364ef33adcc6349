#pragma once

#include <dlaunch/buffer.hpp>
#include <dlaunch/error.hpp>
#include <dlaunch/export.hpp>
#include <dlaunch/message.hpp>
#include <dlaunch/options.hpp>
#include <dlaunch/reduction.hpp>
#include <dlaunch/tensor.hpp>
#include <dlaunch/work.hpp>
#include <dlaunch/world.hpp>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch {

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
/// so; views of them are not kept. A variable is a buffer of one element: `float loss;
/// comm.all_reduce(loss);`. Empty buffers are fine. In a world of one every call works and needs no
/// network. Counts are in elements, ranks are this communicator's own (0..size()-1).
///
/// Errors: every rank's call carries what it is (name, sequence number, dtype, count, root,
/// reduction); ranks that disagree all get Error{mismatch} that shows both calls, and so do ranks
/// that wait for each other in different calls, where no other thread can end that. A wrong
/// argument is Error{misuse} before anything is sent, and the ranks that wait for this one get
/// Error{mismatch}. A dead peer: Error{peer_lost} with its rank and the cause. A call that takes
/// longer than its timeout: Error{timeout} with the ranks that did not come and what they were last
/// seen doing. After abort(): Error{aborted}. The first error (save Error{misuse} and
/// Error{unsupported}) sticks: every later call throws it again, here and on the other ranks; make
/// a new communicator, or end. What the buffers hold after an error is not defined.
///
/// These are the errors of every call, which comments of calls do not repeat; they name what is
/// wrong for them in particular. A buffer is wrong where its data is null and its count is not 0,
/// or where buffers of one call overlap, or differ in dtype: Error{misuse}.
///
/// CUDA buffers go by NCCL, on the stream that Options::cuda_stream names: a blocking call with a
/// stream returns when it is on it, one without when it is done, and a started one's Work is
/// complete when it is done. Both buffers of a call lie on one device, always the same, without
/// strides. The first such call is a collective; all ranks bring NCCL up in it. Error{unsupported}
/// says what is not there: a library, an element type, an operation, tags. A stream that is being
/// captured gets the call and nothing else; its Work never waits. Ranks that disagree are found
/// when their calls are on their streams already, which then are not waited for: NCCL is aborted,
/// also where the program waits in CUDA itself.
class DLAUNCH_API Communicator {
 public:
  /// All ranks of `world`. Nothing is sent: connections are made when first needed. Ranks that make
  /// several communicators from one world make them in the same order. `name` is for messages.
  explicit Communicator(const World& world, std::string_view name = "world");
  /// A communicator that was moved from may only be assigned to, or end.
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
  /// ranks; see SharedBuffer. Needs no other rank. Throws std::bad_alloc where there is too little.
  [[nodiscard]] SharedBuffer allocate(std::size_t bytes);
  /// The same on a CUDA device. Throws Error{unsupported} where the driver or NCCL is not there.
  [[nodiscard]] DeviceBuffer allocate_device(std::size_t bytes, int device);
  /// Called by all ranks, each with its device: NCCL comes up now, and not in the first collective
  /// with CUDA buffers; so that may be captured, and a message be the first call. If NCCL is up, it
  /// is only a barrier. Waits for the default stream, and cannot be captured. Throws
  /// Error{unsupported} where CUDA buffers are not.
  void prepare_device(int device, const Options& options = {});

  // ---- Groups. Each takes part of all ranks of this communicator unless it says otherwise. ----

  /// The ranks that give the same colour, ordered by `key`, then by rank. A rank without a colour
  /// takes part and gets none. Error{misuse}: a negative colour.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0,
                                                  const Options& options = {});
  /// The ranks listed, in that order: `comm.group({0, 2})`. Called by all ranks, with the same
  /// list; those not listed get none. Error{misuse}: no rank, or one listed twice or out of range.
  /// Error{mismatch}: different lists.
  [[nodiscard]] std::optional<Communicator> group(std::span<const int> ranks,
                                                  const Options& options = {});
  [[nodiscard]] std::optional<Communicator> group(std::initializer_list<int> ranks,
                                                  const Options& options = {}) {
    return group(std::span(ranks.begin(), ranks.size()), options);
  }
  /// The same, called by the listed ranks alone; the others need not know. Error{misuse} also on a
  /// rank that is not listed. Nothing is sent: ranks with different lists make different groups.
  /// They find that in the first call in which one waits for another, by its timeout at the latest;
  /// a call that waits for nobody, as a broadcast may on its root, ends well.
  [[nodiscard]] Communicator group_of_members(std::span<const int> ranks,
                                              const Options& options = {});
  [[nodiscard]] Communicator group_of_members(std::initializer_list<int> ranks,
                                              const Options& options = {}) {
    return group_of_members(std::span(ranks.begin(), ranks.size()), options);
  }
  /// The same ranks with traffic of their own.
  [[nodiscard]] Communicator duplicate(const Options& options = {});
  /// This communicator's ranks, in its order, as ranks of the world.
  const std::vector<int>& world_ranks() const noexcept;
  /// This communicator's `rank` as a rank of `other`; nullopt if that one lacks it.
  [[nodiscard]] std::optional<int> translate(int rank, const Communicator& other) const;

  // ---- Collectives: every rank calls, in the same order. ----

  /// Returns when all ranks have called. With BarrierOptions::ordered_output what every rank
  /// printed before comes out before what any prints after. With BarrierOptions::cuda_stream it
  /// returns at once, and what is put on the stream from then on comes after what every rank had
  /// put on its own before; what was printed is not waited for. Error{misuse}: a stream where no
  /// device was prepared, or used.
  void barrier(const BarrierOptions& options = {});
  /// Everyone's `inout` becomes that of `root`. Error{mismatch}: another count, dtype or root on
  /// another rank. Error{misuse}: no such root.
  void broadcast(const TensorView& inout, int root, const Options& options = {});
  /// `out` of `root` becomes the reduction of everyone's `in`. The others' `out` is neither read
  /// nor written and may be empty; their `in` stays untouched. On the root both may be the same
  /// memory. Errors as all_reduce() and broadcast(); Error{misuse} also where the root's `out` has
  /// not in.count elements.
  void reduce(const ConstTensorView& in, const TensorView& out, int root,
              const Reduction& reduction = {}, const ReduceOptions& options = {});
  /// Everyone's `inout` becomes the reduction of all. Error{mismatch}: another count, dtype or
  /// reduction on another rank. Error{misuse}: a reduction that has no meaning for the dtype, as
  /// the mean of integers without ReduceOptions::truncate_mean.
  void all_reduce(const TensorView& inout, const Reduction& reduction = {},
                  const ReduceOptions& options = {});
  /// The same from `in` to `out`, which may be the same memory; this rank alone decides between the
  /// two forms. Error{misuse} also where `out` has not in.count elements.
  void all_reduce_into(const ConstTensorView& in, const TensorView& out,
                       const Reduction& reduction = {}, const ReduceOptions& options = {});
  /// `out` (size() * in.count elements) becomes everyone's `in`, in rank order; `in` may be its own
  /// part of `out`. Error{mismatch}: another count or dtype on another rank. Error{misuse}: `out`
  /// of another size.
  void all_gather(const ConstTensorView& in, const TensorView& out, const Options& options = {});
  /// The same with counts[r] elements from rank r. Error{mismatch}: other counts on another rank.
  /// Error{misuse}: not one count for each rank, this rank's is not in.count, or their sum is not
  /// out.count.
  void all_gather_v(const ConstTensorView& in, const TensorView& out,
                    std::span<const std::size_t> counts, const Options& options = {});
  /// The same into views of their own, which need not lie side by side nor be contiguous: out[r]
  /// becomes rank r's `in`, which may be out[rank()]; the views' counts are the call's. The place
  /// of the parts is each rank's own affair: this is all_gather_v on another rank, and messages
  /// call it so. Nothing is gathered in one buffer on the way, but for small parts and where a rank
  /// speaks for its node. Error{mismatch} as all_gather_v. Error{misuse}: not one view for each
  /// rank, this rank's has not in.count elements, or two overlap.
  void all_gather_list(const ConstTensorView& in, std::span<const TensorView> out,
                       const Options& options = {});
  /// all_gather whose result is written on `root` alone; the others' `out` may be empty. Errors as
  /// all_gather; also those of a root, see broadcast().
  void gather(const ConstTensorView& in, const TensorView& out, int root,
              const Options& options = {});
  /// counts[r] elements from rank r; only the root's counts are read. Error{mismatch}: another
  /// rank's in.count is not its entry.
  void gather_v(const ConstTensorView& in, const TensorView& out,
                std::span<const std::size_t> counts, int root, const Options& options = {});
  /// The same into views of the root's; the others' `out` may be empty. See all_gather_list.
  void gather_list(const ConstTensorView& in, std::span<const TensorView> out, int root,
                   const Options& options = {});
  /// Rank r's `out` becomes the r-th part of the root's `in` (size() * out.count elements). The
  /// others' `in` may be empty; the root's `out` may be its own part of `in`. Errors as gather().
  void scatter(const ConstTensorView& in, const TensorView& out, int root,
               const Options& options = {});
  /// The same with counts[r] elements for rank r. Errors as gather_v.
  void scatter_v(const ConstTensorView& in, const TensorView& out,
                 std::span<const std::size_t> counts, int root, const Options& options = {});
  /// The same from views of the root's, which may overlap each other: rank r's `out` becomes in[r].
  /// The others' `in` may be empty. See all_gather_list.
  void scatter_list(std::span<const ConstTensorView> in, const TensorView& out, int root,
                    const Options& options = {});
  /// The reduction of everyone's `in` (size() * out.count elements); rank r gets its r-th part.
  /// Errors as all_reduce; Error{misuse} also where `in` has another size.
  void reduce_scatter(const ConstTensorView& in, const TensorView& out,
                      const Reduction& reduction = {}, const ReduceOptions& options = {});
  /// The same with a part of counts[r] elements for rank r. Errors also as all_gather_v.
  void reduce_scatter_v(const ConstTensorView& in, const TensorView& out,
                        std::span<const std::size_t> counts, const Reduction& reduction = {},
                        const ReduceOptions& options = {});
  /// The same from views, which may overlap each other: rank r gets the reduction of everyone's
  /// in[r]. See all_gather_list.
  void reduce_scatter_list(std::span<const ConstTensorView> in, const TensorView& out,
                           const Reduction& reduction = {}, const ReduceOptions& options = {});
  /// `in` and `out` are size() equal parts; part j of rank i goes to part i of rank j.
  /// Error{mismatch}: another count or dtype on another rank. Error{misuse}: they differ in size,
  /// or are not equal parts.
  void all_to_all(const ConstTensorView& in, const TensorView& out, const Options& options = {});
  /// in_counts[j] elements go to rank j, out_counts[i] come from rank i, packed in rank order.
  /// Error{mismatch}: rank i sends another number than out_counts[i]. Error{misuse}: not one count
  /// for each rank, or sums that are not those of `in` and `out`.
  void all_to_all_v(const ConstTensorView& in, std::span<const std::size_t> in_counts,
                    const TensorView& out, std::span<const std::size_t> out_counts,
                    const Options& options = {});
  /// The same from views and into views, of one type: in[j] goes to rank j, out[i] comes from rank
  /// i. Those that are read may overlap each other. See all_gather_list.
  void all_to_all_list(std::span<const ConstTensorView> in, std::span<const TensorView> out,
                       const Options& options = {});

  /// Rank r's `out` becomes the reduction of the `in` of ranks 0 to r, in their order. Both may be
  /// the same memory. A mean is that of the ranks that were reduced. Errors as all_reduce;
  /// Error{misuse} also where `out` has not in.count elements, Error{unsupported} for CUDA buffers.
  void scan(const ConstTensorView& in, const TensorView& out, const Reduction& reduction = {},
            const ReduceOptions& options = {});
  /// The same of the ranks before r alone; rank 0's `out` is not written.
  void exscan(const ConstTensorView& in, const TensorView& out, const Reduction& reduction = {},
              const ReduceOptions& options = {});

  // ---- Started collectives: the same meaning, in the order of starting; see Work. ----
  // With ordered_output start_barrier flushes when it is called, and waits until the launcher has
  // read when its turn comes. After 16384 that are not complete, starting waits. What is wrong with
  // the arguments is thrown by wait(), and with CUDA buffers at once. Error{internal}: there can be
  // no thread. Several are waited for together by wait_all; messages by batch().

  Work start_barrier(const BarrierOptions& options = {});
  Work start_broadcast(const TensorView& inout, int root, const Options& options = {});
  Work start_reduce(const ConstTensorView& in, const TensorView& out, int root,
                    const Reduction& reduction = {}, const ReduceOptions& options = {});
  Work start_all_reduce(const TensorView& inout, const Reduction& reduction = {},
                        const ReduceOptions& options = {});
  Work start_all_reduce_into(const ConstTensorView& in, const TensorView& out,
                             const Reduction& reduction = {}, const ReduceOptions& options = {});
  Work start_all_gather(const ConstTensorView& in, const TensorView& out,
                        const Options& options = {});
  Work start_all_gather_v(const ConstTensorView& in, const TensorView& out,
                          std::span<const std::size_t> counts, const Options& options = {});
  Work start_all_gather_list(const ConstTensorView& in, std::span<const TensorView> out,
                             const Options& options = {});
  Work start_gather(const ConstTensorView& in, const TensorView& out, int root,
                    const Options& options = {});
  Work start_gather_v(const ConstTensorView& in, const TensorView& out,
                      std::span<const std::size_t> counts, int root, const Options& options = {});
  Work start_gather_list(const ConstTensorView& in, std::span<const TensorView> out, int root,
                         const Options& options = {});
  Work start_scatter(const ConstTensorView& in, const TensorView& out, int root,
                     const Options& options = {});
  Work start_scatter_v(const ConstTensorView& in, const TensorView& out,
                       std::span<const std::size_t> counts, int root, const Options& options = {});
  Work start_scatter_list(std::span<const ConstTensorView> in, const TensorView& out, int root,
                          const Options& options = {});
  Work start_reduce_scatter(const ConstTensorView& in, const TensorView& out,
                            const Reduction& reduction = {}, const ReduceOptions& options = {});
  Work start_reduce_scatter_v(const ConstTensorView& in, const TensorView& out,
                              std::span<const std::size_t> counts, const Reduction& reduction = {},
                              const ReduceOptions& options = {});
  Work start_reduce_scatter_list(std::span<const ConstTensorView> in, const TensorView& out,
                                 const Reduction& reduction = {},
                                 const ReduceOptions& options = {});
  Work start_all_to_all(const ConstTensorView& in, const TensorView& out,
                        const Options& options = {});
  Work start_all_to_all_v(const ConstTensorView& in, std::span<const std::size_t> in_counts,
                          const TensorView& out, std::span<const std::size_t> out_counts,
                          const Options& options = {});
  Work start_all_to_all_list(std::span<const ConstTensorView> in, std::span<const TensorView> out,
                             const Options& options = {});
  Work start_scan(const ConstTensorView& in, const TensorView& out, const Reduction& reduction = {},
                  const ReduceOptions& options = {});
  Work start_exscan(const ConstTensorView& in, const TensorView& out,
                    const Reduction& reduction = {}, const ReduceOptions& options = {});

  // ---- Point to point. Messages between two ranks with one tag arrive in the order sent. ----
  // Error{misuse}: no such rank, or a tag that is none. A message that nobody receives yet is kept,
  // up to 16 MiB of each source; beyond that its sender waits. While a rank waits for a later one
  // of that source everything before it is kept, so tags may be received in any order: it takes
  // that much memory.

  /// Returns when `data` may be used again. A message that fits the kernel's socket buffer does not
  /// wait for the receiver; a larger one may. Sending to oneself is buffered. Error{mismatch}: the
  /// receive that took it was for another count or dtype; from a later call, where this one did not
  /// wait.
  void send(const ConstTensorView& data, int to, const MessageOptions& options = {});
  /// Returns when the receiver has received it, whatever its size. To oneself: an irecv has to be
  /// there. Errors as those of send(); Error{unsupported} for CUDA buffers.
  void ssend(const ConstTensorView& data, int to, const MessageOptions& options = {});
  /// Receives exactly data.count elements of its dtype; Error{mismatch} for anything else, on both
  /// sides. `from` may be any_source, the tag any_tag.
  Received recv(const TensorView& data, int from, const MessageOptions& options = {});
  /// Receives data.count elements at most; the rest of `data` is not written. Error{misuse}: the
  /// message has more. It stays, and the first receive that has room for it takes it.
  /// Error{mismatch}: another dtype. Error{unsupported} for CUDA buffers.
  Received recv_up_to(const TensorView& data, int from, const MessageOptions& options = {});
  /// Sends `out` and receives `in`, both at once and by one tag: ranks that exchange, or pass data
  /// round a ring, do not wait for each other's receives. Errors as those of send() and recv().
  Received sendrecv(const ConstTensorView& out, int to, const TensorView& in, int from,
                    const MessageOptions& options = {});
  /// The same with the errors of recv_up_to(): `in` is the most it receives.
  Received sendrecv_up_to(const ConstTensorView& out, int to, const TensorView& in, int from,
                          const MessageOptions& options = {});
  /// The same, without waiting. A message that can leave at once has left when isend returns, and
  /// one that has come is there when irecv does.
  Work isend(const ConstTensorView& data, int to, const MessageOptions& options = {});
  Work issend(const ConstTensorView& data, int to, const MessageOptions& options = {});
  Work irecv(const TensorView& data, int from, const MessageOptions& options = {});
  Work irecv_up_to(const TensorView& data, int from, const MessageOptions& options = {});
  /// Starts all before it waits for any, so that exchanges cannot block each other. Each goes by
  /// the tag that it has itself: `comm.batch({Transfer::send(x, next), Transfer::recv(y, last)})`.
  /// Errors as those of send() and recv(); Error{misuse} of any is found before the first has
  /// begun.
  void batch(std::span<const Transfer> transfers, const Options& options = {});
  void batch(std::initializer_list<Transfer> transfers, const Options& options = {}) {
    batch(std::span(transfers.begin(), transfers.size()), options);
  }
  [[nodiscard]] std::vector<Work> start_batch(std::span<const Transfer> transfers,
                                              const Options& options = {});
  [[nodiscard]] std::vector<Work> start_batch(std::initializer_list<Transfer> transfers,
                                              const Options& options = {}) {
    return start_batch(std::span(transfers.begin(), transfers.size()), options);
  }
  /// Waits until a message that a recv with these arguments would take has begun to arrive. It
  /// takes nothing, so Error{timeout} breaks nothing where the options have a timeout of their own;
  /// so with start_probe and match().
  [[nodiscard]] Received probe(int from, const MessageOptions& options = {});
  /// The same without waiting.
  [[nodiscard]] std::optional<Received> try_probe(int from, const MessageOptions& options = {});
  /// The same as a call that goes on beside others, for wait_any over probes and receives:
  /// received() says what was found. It takes nothing. What a receive takes that was posted before
  /// the message came is not found. cancel() it where nothing may come any more, as the destructor
  /// waits.
  Work start_probe(int from, const MessageOptions& options = {});
  /// As probe(), and sets the message apart for recv_matched: what was probed may be another
  /// receive's by the time of a recv, where several are under way.
  [[nodiscard]] Message match(int from, const MessageOptions& options = {});
  /// The same without waiting.
  [[nodiscard]] std::optional<Message> try_match(int from, const MessageOptions& options = {});
  /// Receives it into the first elements of `data`; `message` is empty then. Error{misuse}, after
  /// which `message` is as it was: it is empty, or another communicator's; `data` is shorter, or of
  /// another dtype. Error{unsupported} for CUDA buffers.
  Received recv_matched(Message&& message, const TensorView& data, const Options& options = {});

  /// For a loop of the program's own over poll(2), epoll(7) and the like: readable when a started
  /// call of this communicator, or of one that was made from it or from which it was made, may have
  /// become complete; at first, too. Read it empty (8 bytes at a time, until EAGAIN), then test()
  /// what was started, then wait for it again: nothing is missed in that order. It may be readable
  /// without a cause. Always the same one; valid as long as this communicator; not to be closed.
  /// Calls with CUDA buffers are not told of. Error{internal}: there is no descriptor left.
  [[nodiscard]] int descriptor();

  // ---- Structured values: dictionaries, lists, tensors, numbers, text; see Tree. ----

  // Error{misuse}: a value that cannot be sent, see Tree::encode.

  /// Everyone gets root's value, shape and types included; `value` is read on the root alone.
  /// Error{mismatch}: another root on another rank. Error{misuse}: no such root.
  [[nodiscard]] Tree broadcast_object(const Tree& value, int root, const Options& options = {});
  /// Everyone's value, in rank order, each as it is.
  [[nodiscard]] std::vector<Tree> all_gather_objects(const Tree& value,
                                                     const Options& options = {});
  /// One tree of the same structure whose tensors got a new leading axis over the ranks; numbers
  /// and booleans count as tensors of one element, text and null become lists. Also in a world of
  /// one. Structures that differ: Error{mismatch} with the first path that does.
  [[nodiscard]] Tree all_gather_stacked(const Tree& value, const Options& options = {});
  /// One tree of the same structure whose tensors and numbers are reduced over the ranks. Text and
  /// null must be the same everywhere: Error{mismatch} with the first path that is not.
  [[nodiscard]] Tree all_reduce_object(const Tree& value, const Reduction& reduction = {},
                                       const ReduceOptions& options = {});
  /// Root's result has everyone's value, the others' is empty. Errors as broadcast_object.
  [[nodiscard]] std::vector<Tree> gather_objects(const Tree& value, int root,
                                                 const Options& options = {});
  /// values[r] of root goes to rank r; read on the root alone. Errors as broadcast_object;
  /// Error{misuse} also where there is not one value for each rank.
  [[nodiscard]] Tree scatter_objects(std::span<const Tree> values, int root,
                                     const Options& options = {});
  /// As send() and recv; what is no value is Error{mismatch}.
  void send_object(const Tree& value, int to, const MessageOptions& options = {});
  [[nodiscard]] Tree recv_object(int from, const MessageOptions& options = {});

  // ---- Ending, and going on without the dead. ----
  // After User-Level Failure Mitigation (Bland et al., "Post-failure recovery of MPI communication
  // capability", IJHPCA 2013). A death breaks every communicator that the dead rank was part of;
  // those who live revoke it, so that nobody waits in it, then shrink it and go on. The launcher
  // leaves them alone with --on-failure continue. docs/collectives.md has the pattern.

  /// From any thread, any number of times, whether or not this rank is in a call. Waits for no
  /// rank, and for a moment until word of it has left. Here every pending and later call throws
  /// Error{aborted}; the others get Error{aborted} or Error{peer_lost}, those that wait at once.
  /// All are told which rank called it, and where.
  void abort(const CallSite& site = CallSite::here()) noexcept;
  /// Makes every call on every rank of this communicator throw Error{revoked}, those that wait
  /// included, so that all can meet in shrink(). Ranks on which an error sticks already keep that
  /// one. Waits for nobody. A rank that revokes and dies at once may not have told all.
  void revoke();
  /// Agrees on the bitwise and of everyone's `flags` among the ranks that live, despite losses, and
  /// on a broken or revoked communicator, too; not after abort(). Every living rank calls it, in
  /// the same order with shrink(). All who get an answer get the same one; an error
  /// (Error{timeout}, naming who neither came nor is known to be lost; Error{mismatch}) all get
  /// alike. The flags of a rank that died meanwhile may count or not. Costs two entries in the
  /// store for each rank, and some 5 ms.
  [[nodiscard]] std::uint32_t agree(std::uint32_t flags, const Options& options = {});
  /// A communicator of the ranks that live and call this, in their old order, with connections and
  /// shared memory of its own: nothing that was under way in the old one reaches it. The others are
  /// as in agree(). A rank that was taken for lost and lives gets Error{peer_lost}. One more death
  /// meanwhile may go unnoticed here, and breaks the new communicator's first call: shrink that one
  /// then.
  [[nodiscard]] Communicator shrink(const Options& options = {});

 private:
  friend class DeviceWork;
  friend class JoinGroup;
  friend class MatchedMessage;
  friend class MessageWork;
  friend class TableInUse;
  struct State;
  explicit Communicator(std::shared_ptr<State> state) noexcept;
  std::shared_ptr<State> state_;
};

}  // namespace dlaunch
