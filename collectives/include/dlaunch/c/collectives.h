#pragma once

#include <dlaunch/c/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Collectives: every rank calls, in the same order.
 * In C: see dl_comm for threads, buffers and errors. `counts` and lists of views have
 * dl_comm_size(comm) entries; an empty view is {0}. ---- */

/* Returns when all ranks have called. With dl_options.ordered_output what every rank printed before
 * comes out before what any prints after. With dl_options.cuda_stream it returns at once, and what
 * is put on the stream from then on comes after what every rank had put on its own before; what was
 * printed is not waited for. DL_MISUSE: a stream where no device was prepared, or used. */
DL_API dl_status dl_barrier(dl_comm* comm, const dl_options* options);
/* Everyone's `inout` becomes that of `root`. DL_MISMATCH: another count, dtype or root on another
 * rank. DL_MISUSE: no such root. */
DL_API dl_status dl_broadcast(dl_comm* comm, dl_view inout, int root, const dl_options* options);
/* `out` of `root` becomes the reduction of everyone's `in`. The others' `out` is neither read nor
 * written and may be empty; their `in` stays untouched. On the root both may be the same memory.
 * Errors as dl_all_reduce and dl_broadcast; DL_MISUSE also where the root's `out` has not in.count
 * elements. */
DL_API dl_status dl_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root,
                           dl_reduction reduction, const dl_options* options);
/* Everyone's `inout` becomes the reduction of all. DL_MISMATCH: another count, dtype or reduction
 * on another rank. DL_MISUSE: a reduction that has no meaning for the dtype, as the mean of
 * integers without dl_options.truncate_mean. */
DL_API dl_status dl_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction,
                               const dl_options* options);
/* The same from `in` to `out`, which may be the same memory; this rank alone decides between the
 * two forms. DL_MISUSE also where `out` has not in.count elements. */
DL_API dl_status dl_all_reduce_into(dl_comm* comm, dl_const_view in, dl_view out,
                                    dl_reduction reduction, const dl_options* options);
/* `out` (size * in.count elements) becomes everyone's `in`, in rank order; `in` may be its own part
 * of `out`. DL_MISMATCH: another count or dtype on another rank. DL_MISUSE: `out` of another
 * size. */
DL_API dl_status dl_all_gather(dl_comm* comm, dl_const_view in, dl_view out,
                               const dl_options* options);
/* The same with counts[r] elements from rank r. DL_MISMATCH: other counts on another rank.
 * DL_MISUSE: not one count for each rank, this rank's is not in.count, or their sum is not
 * out.count. */
DL_API dl_status dl_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                                 const dl_options* options);
/* The same into views of their own, which need not lie side by side nor be contiguous: out[r]
 * becomes rank r's `in`, which may be out[rank]; the views' counts are the call's. The place of the
 * parts is each rank's own affair: this is dl_all_gather_v on another rank, and messages call it
 * so. Nothing is gathered in one buffer on the way, but for small parts and where a rank speaks for
 * its node. DL_MISMATCH as dl_all_gather_v. DL_MISUSE: not one view for each rank, this rank's has
 * not in.count elements, or two overlap. */
DL_API dl_status dl_all_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out,
                                    const dl_options* options);
/* dl_all_gather whose result is written on `root` alone; the others' `out` may be empty. Errors as
 * dl_all_gather; also those of a root, see dl_broadcast. */
DL_API dl_status dl_gather(dl_comm* comm, dl_const_view in, dl_view out, int root,
                           const dl_options* options);
/* counts[r] elements from rank r; only the root's counts are read. DL_MISMATCH: another rank's
 * in.count is not its entry.
 * In C: `counts` may be null on other ranks than the root. */
DL_API dl_status dl_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                             int root, const dl_options* options);
/* The same into views of the root's; the others' `out` may be empty. See dl_all_gather_list.
 * In C: `out` may be null on other ranks than the root. */
DL_API dl_status dl_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out, int root,
                                const dl_options* options);
/* Rank r's `out` becomes the r-th part of the root's `in` (size * out.count elements). The others'
 * `in` may be empty; the root's `out` may be its own part of `in`. Errors as dl_gather. */
DL_API dl_status dl_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root,
                            const dl_options* options);
/* The same with counts[r] elements for rank r. Errors as dl_gather_v.
 * In C: `counts` may be null on other ranks than the root. */
DL_API dl_status dl_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                              int root, const dl_options* options);
/* The same from views of the root's, which may overlap each other: rank r's `out` becomes in[r].
 * The others' `in` may be empty. See dl_all_gather_list.
 * In C: `in` may be null on other ranks than the root. */
DL_API dl_status dl_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out, int root,
                                 const dl_options* options);
/* The reduction of everyone's `in` (size * out.count elements); rank r gets its r-th part. Errors
 * as dl_all_reduce; DL_MISUSE also where `in` has another size. */
DL_API dl_status dl_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out,
                                   dl_reduction reduction, const dl_options* options);
/* The same with a part of counts[r] elements for rank r. Errors also as dl_all_gather_v. */
DL_API dl_status dl_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                     const size_t* counts, dl_reduction reduction,
                                     const dl_options* options);
/* The same from views, which may overlap each other: rank r gets the reduction of everyone's in[r].
 * See dl_all_gather_list. */
DL_API dl_status dl_reduce_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                        dl_reduction reduction, const dl_options* options);
/* `in` and `out` are size equal parts; part j of rank i goes to part i of rank j. DL_MISMATCH:
 * another count or dtype on another rank. DL_MISUSE: they differ in size, or are not equal
 * parts. */
DL_API dl_status dl_all_to_all(dl_comm* comm, dl_const_view in, dl_view out,
                               const dl_options* options);
/* in_counts[j] elements go to rank j, out_counts[i] come from rank i, packed in rank order.
 * DL_MISMATCH: rank i sends another number than out_counts[i]. DL_MISUSE: not one count for each
 * rank, or sums that are not those of `in` and `out`. */
DL_API dl_status dl_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts,
                                 dl_view out, const size_t* out_counts, const dl_options* options);
/* The same from views and into views, of one type: in[j] goes to rank j, out[i] comes from rank i.
 * Those that are read may overlap each other. See dl_all_gather_list. */
DL_API dl_status dl_all_to_all_list(dl_comm* comm, const dl_const_view* in, const dl_view* out,
                                    const dl_options* options);

/* Rank r's `out` becomes the reduction of the `in` of ranks 0 to r, in their order. Both may be the
 * same memory. A mean is that of the ranks that were reduced. Errors as dl_all_reduce; DL_MISUSE
 * also where `out` has not in.count elements, DL_UNSUPPORTED for CUDA buffers. */
DL_API dl_status dl_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                         const dl_options* options);
/* The same of the ranks before r alone; rank 0's `out` is not written. */
DL_API dl_status dl_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                           const dl_options* options);

/* ---- Started calls. ---- */

/* A call that was started and may not be complete. The buffers it was given are borrowed until it
 * is, so dl_work_free waits; counts, lists of views and options are copied. For the thread that
 * uses its communicator.
 *
 * It goes on while the program computes, and needs no call for it. Started collectives of one
 * communicator run in the order in which they were started: on the thread that waits for them or
 * tests them, and after some hundred microseconds without one on a thread of the communicator's;
 * messages are moved by whichever thread is in a call, else by one thread that all communicators
 * made from each other share. Neither uses a core while nothing moves. Communicators do not wait
 * for each other: ranks may start on several of them in different orders.
 *
 * Calls with CUDA buffers are on their stream when starting returns. One that was captured is
 * complete at once.
 *
 * A started call that fails is complete, and dl_work_wait returns the error, which sticks to the
 * communicator as a blocking call's does. A collective's timeout counts from its turn, a message's
 * from dl_work_wait. Once the communicator was freed every dl_work of it is complete, with
 * DL_ABORTED if it was not before.
 * In C: a reduction's name is copied, too. */
typedef struct dl_work dl_work;

/* Blocks the calling thread until complete, wherever the buffers lie. Returns what the blocking
 * form of the call returns; calling it again does nothing, or returns the same again. */
DL_API dl_status dl_work_wait(dl_work* work);
/* The same for `limit_ms` at most; zero or less only looks, as dl_work_test does. *done becomes 1
 * when complete, also when it failed (dl_work_wait then returns the error); 0 when it goes on: that
 * fails no call. DL_MISUSE in a completion of the same communicator, and in a forked child. */
DL_API dl_status dl_work_wait_for(dl_work* work, int64_t limit_ms, int* done);
/* *done becomes 1 when complete, also when it failed (dl_work_wait then returns the error). Moves
 * what can be moved at once, and waits for nobody; where ranks share processors the others have
 * this one for a turn. */
DL_API dl_status dl_work_test(dl_work* work, int* done);
/* The same as dl_work_test, but moves nothing: a few instructions where there is nothing new.
 * In C: 1 or 0, and 1 for null. */
DL_API int dl_work_done(const dl_work* work);
/* Takes back a receive or a probe that no message has come for. *cancelled becomes 1 when it is
 * taken back: dl_work_wait returns DL_ABORTED from then on, which does not stick. *cancelled
 * becomes 0 when it is complete, or a message is on its way into its buffer. Messages find the next
 * receive. DL_UNSUPPORTED for sends and collectives. */
DL_API dl_status dl_work_cancel(dl_work* work, int* cancelled);
/* Called once when a call has ended, with what dl_work_wait returns for it, and the sentence of
 * what went wrong ("" for DL_OK), which lives until it returns. */
typedef void (*dl_completion)(void* argument, dl_status status, const char* message);
/* Calls `completion` once, when the call has ended, however it has: also by an abort, a lost peer,
 * or the end of its communicator. Several are called in the order in which they were set. For
 * started collectives with host buffers; else DL_UNSUPPORTED: a message is looked at by
 * dl_work_test or dl_work_wait_any, and a stream has its own callbacks.
 *
 * Thread: the one that ended the call. That is the communicator's own, or one that waits for this
 * call or a later one, or tests it, or the one that frees the communicator. If the call is complete
 * already it is this thread, before dl_work_on_complete returns.
 *
 * Order: dl_work_wait returns, dl_work_done becomes 1, and the communicator's next collective
 * begins only after it has returned.
 *
 * It may call anything but what waits for this communicator's started calls, its blocking
 * collectives included: DL_MISUSE. What it starts there is one of the rank's calls like any other:
 * on all ranks in the same order, and from one thread at a time. */
DL_API dl_status dl_work_on_complete(dl_work* work, dl_completion completion, void* argument);
/* Lets `cuda_stream` (a cudaStream_t) wait for the result while the host goes on. For host buffers:
 * DL_UNSUPPORTED; call dl_work_wait. */
DL_API dl_status dl_work_order_before(dl_work* work, void* cuda_stream);
/* Waits until one of `works` is complete, also when it failed (its dl_work_wait then returns the
 * error), and gives its index: the lowest, if there are several. Null ones are passed over. Gives
 * none where there are no others, or `limit_ms` has passed, which fails no call. They may be of
 * several communicators. The end of a message is noticed at once where all are messages of
 * communicators that were made from each other; else each is looked at some thousand times a
 * second.
 * In C: *index becomes `count` for none. A `limit_ms` of 0 or less only looks, and INT64_MAX is no
 * limit: the calls end by timeouts of their own. */
DL_API dl_status dl_work_wait_any(dl_work* const* works, size_t count, int64_t limit_ms,
                                  size_t* index);
/* The same, and gives all that are complete by then, in their order; none where dl_work_wait_any
 * gives none. Those that were dealt with are to be freed and made null, or they come again.
 * In C: *complete of them, in the first places of `indices`, which has `count`. */
DL_API dl_status dl_work_wait_some(dl_work* const* works, size_t count, int64_t limit_ms,
                                   size_t* indices, size_t* complete);
/* dl_work_wait_any that waits for nothing, as dl_work_test.
 * In C: *index becomes `count` for none. */
DL_API dl_status dl_work_test_any(dl_work* const* works, size_t count, size_t* index);
/* *done becomes 1 when all are complete, also when they failed. Tests each, and waits for
 * nothing. */
DL_API dl_status dl_work_test_all(dl_work* const* works, size_t count, int* done);
/* Waits for all, whatever becomes of any; then returns the error of the first that failed. Null
 * ones are passed over. */
DL_API dl_status dl_work_wait_all(dl_work* const* works, size_t count);
/* Waits until complete, then frees. An error is not lost: it sticks to the communicator and is
 * returned by its next call. Null is fine. */
DL_API void dl_work_free(dl_work* work);

/* ---- Started collectives: the same meaning, in the order of starting; see dl_work. With
 * ordered_output dl_start_barrier flushes when it is called, and waits until the launcher has read
 * when its turn comes. After 16384 that are not complete, starting waits. What is wrong with the
 * arguments is returned by dl_work_wait, and with CUDA buffers at once. DL_INTERNAL: there can be
 * no thread. Several are waited for together by dl_work_wait_all; messages by dl_batch. ---- */

DL_API dl_status dl_start_barrier(dl_comm* comm, dl_work** work, const dl_options* options);
DL_API dl_status dl_start_broadcast(dl_comm* comm, dl_view inout, int root, dl_work** work,
                                    const dl_options* options);
DL_API dl_status dl_start_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root,
                                 dl_reduction reduction, dl_work** work, const dl_options* options);
DL_API dl_status dl_start_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction,
                                     dl_work** work, const dl_options* options);
DL_API dl_status dl_start_all_reduce_into(dl_comm* comm, dl_const_view in, dl_view out,
                                          dl_reduction reduction, dl_work** work,
                                          const dl_options* options);
DL_API dl_status dl_start_all_gather(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                                     const dl_options* options);
DL_API dl_status dl_start_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out,
                                       const size_t* counts, dl_work** work,
                                       const dl_options* options);
DL_API dl_status dl_start_all_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out,
                                          dl_work** work, const dl_options* options);
DL_API dl_status dl_start_gather(dl_comm* comm, dl_const_view in, dl_view out, int root,
                                 dl_work** work, const dl_options* options);
DL_API dl_status dl_start_gather_v(dl_comm* comm, dl_const_view in, dl_view out,
                                   const size_t* counts, int root, dl_work** work,
                                   const dl_options* options);
DL_API dl_status dl_start_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out, int root,
                                      dl_work** work, const dl_options* options);
DL_API dl_status dl_start_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root,
                                  dl_work** work, const dl_options* options);
DL_API dl_status dl_start_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                    const size_t* counts, int root, dl_work** work,
                                    const dl_options* options);
DL_API dl_status dl_start_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                       int root, dl_work** work, const dl_options* options);
DL_API dl_status dl_start_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out,
                                         dl_reduction reduction, dl_work** work,
                                         const dl_options* options);
DL_API dl_status dl_start_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                           const size_t* counts, dl_reduction reduction,
                                           dl_work** work, const dl_options* options);
DL_API dl_status dl_start_reduce_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                              dl_reduction reduction, dl_work** work,
                                              const dl_options* options);
DL_API dl_status dl_start_all_to_all(dl_comm* comm, dl_const_view in, dl_view out, dl_work** work,
                                     const dl_options* options);
DL_API dl_status dl_start_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts,
                                       dl_view out, const size_t* out_counts, dl_work** work,
                                       const dl_options* options);
DL_API dl_status dl_start_all_to_all_list(dl_comm* comm, const dl_const_view* in,
                                          const dl_view* out, dl_work** work,
                                          const dl_options* options);
DL_API dl_status dl_start_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                               dl_work** work, const dl_options* options);
DL_API dl_status dl_start_exscan(dl_comm* comm, dl_const_view in, dl_view out,
                                 dl_reduction reduction, dl_work** work, const dl_options* options);

/* inout[i] = in[i] op inout[i], here and now, without a communicator: what a call does with the
 * elements of two ranks, of which `in` is the first. Both may be the same memory. DL_MISUSE:
 * DL_MEAN or DL_PREMUL_SUM, which are of all ranks at once; buffers that differ in dtype or count,
 * or overlap; a reduction that has no meaning for the dtype. DL_UNSUPPORTED for CUDA buffers. For
 * any thread. */
DL_API dl_status dl_reduce_local(dl_const_view in, dl_view inout, dl_reduction reduction);

#ifdef __cplusplus
}
#endif
