#pragma once

#include <dlaunch/c/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Collectives: every rank calls, in the same order. See dl_comm for threads, buffers and
 * errors. `counts` and lists of views have dl_comm_size(comm) entries; counts are in elements. What
 * is wrong for a call in particular is said in dlaunch/communicator.hpp. ---- */

/* Returns when all ranks have called; see dl_options.ordered_output. With dl_options.cuda_stream
 * it returns at once, and is a barrier of the ranks' streams. */
DL_API dl_status dl_barrier(dl_comm* comm, const dl_options* options);
/* Everyone's `inout` becomes that of `root`. Same count and dtype on all ranks. */
DL_API dl_status dl_broadcast(dl_comm* comm, dl_view inout, int root, const dl_options* options);
/* `out` of `root` becomes the reduction of everyone's `in`. The others' `out` is neither read nor
 * written and may be empty ({0}); their `in` stays untouched. On the root both may be the same
 * memory. */
DL_API dl_status dl_reduce(dl_comm* comm, dl_const_view in, dl_view out, int root,
                           dl_reduction reduction, const dl_options* options);
/* Everyone's `inout` becomes the reduction of all. */
DL_API dl_status dl_all_reduce(dl_comm* comm, dl_view inout, dl_reduction reduction,
                               const dl_options* options);
/* The same from `in` to `out`, which may be the same memory; each rank decides between the two
 * forms for itself. */
DL_API dl_status dl_all_reduce_into(dl_comm* comm, dl_const_view in, dl_view out,
                                    dl_reduction reduction, const dl_options* options);
/* `out` (size * in.count elements) becomes everyone's `in`, in rank order. */
DL_API dl_status dl_all_gather(dl_comm* comm, dl_const_view in, dl_view out,
                               const dl_options* options);
/* The same with counts[r] elements from rank r; counts are the same on all ranks. */
DL_API dl_status dl_all_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                                 const dl_options* options);
/* The same into views of their own, which need not lie side by side nor be contiguous: out[r]
 * becomes rank r's `in`, which may be this rank's view; the views' counts are the call's. On
 * another rank this may be dl_all_gather_v, and messages call it so. DL_MISUSE: views that overlap.
 */
DL_API dl_status dl_all_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out,
                                    const dl_options* options);
/* dl_all_gather whose result is written on `root` alone; the others' `out` may be empty. */
DL_API dl_status dl_gather(dl_comm* comm, dl_const_view in, dl_view out, int root,
                           const dl_options* options);
/* counts[r] elements from rank r; only the root's counts are read (null elsewhere), and each rank's
 * in.count must be its entry. */
DL_API dl_status dl_gather_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                             int root, const dl_options* options);
/* The same into views of the root's; `out` may be null elsewhere. */
DL_API dl_status dl_gather_list(dl_comm* comm, dl_const_view in, const dl_view* out, int root,
                                const dl_options* options);
/* Rank r's `out` becomes the r-th part of the root's `in` (size * out.count elements). The others'
 * `in` may be empty. */
DL_API dl_status dl_scatter(dl_comm* comm, dl_const_view in, dl_view out, int root,
                            const dl_options* options);
DL_API dl_status dl_scatter_v(dl_comm* comm, dl_const_view in, dl_view out, const size_t* counts,
                              int root, const dl_options* options);
/* The same from views of the root's: rank r's `out` becomes in[r]. `in` may be null elsewhere. */
DL_API dl_status dl_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out, int root,
                                 const dl_options* options);
/* The reduction of everyone's `in` (size * out.count elements); rank r gets its r-th part. */
DL_API dl_status dl_reduce_scatter(dl_comm* comm, dl_const_view in, dl_view out,
                                   dl_reduction reduction, const dl_options* options);
/* The same with a part of counts[r] elements for rank r; counts are the same on all ranks. */
DL_API dl_status dl_reduce_scatter_v(dl_comm* comm, dl_const_view in, dl_view out,
                                     const size_t* counts, dl_reduction reduction,
                                     const dl_options* options);
/* The same from views: rank r gets the reduction of everyone's in[r]. */
DL_API dl_status dl_reduce_scatter_list(dl_comm* comm, const dl_const_view* in, dl_view out,
                                        dl_reduction reduction, const dl_options* options);
/* `in` and `out` are size equal parts; part j of rank i goes to part i of rank j. */
DL_API dl_status dl_all_to_all(dl_comm* comm, dl_const_view in, dl_view out,
                               const dl_options* options);
/* in_counts[j] elements go to rank j, out_counts[i] come from rank i, packed in rank order. */
DL_API dl_status dl_all_to_all_v(dl_comm* comm, dl_const_view in, const size_t* in_counts,
                                 dl_view out, const size_t* out_counts, const dl_options* options);
/* The same from views and into views: in[j] goes to rank j, out[i] comes from rank i. */
DL_API dl_status dl_all_to_all_list(dl_comm* comm, const dl_const_view* in, const dl_view* out,
                                    const dl_options* options);

/* Rank r's `out` becomes the reduction of the `in` of ranks 0 to r, in their order. Both may be the
 * same memory. DL_UNSUPPORTED for CUDA buffers. */
DL_API dl_status dl_scan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                         const dl_options* options);
/* The same of the ranks before r alone; rank 0's `out` is not written. */
DL_API dl_status dl_exscan(dl_comm* comm, dl_const_view in, dl_view out, dl_reduction reduction,
                           const dl_options* options);

/* ---- Started calls. ---- */

/* A call that was started and may not be complete. The memory its views show is borrowed until it
 * is; counts, lists of views, options and a reduction's name are copied. For the thread that uses
 * its communicator. See dlaunch/work.hpp for when progress is made. */
typedef struct dl_work dl_work;

/* Blocks the calling thread until complete, wherever the buffers lie, and returns what the blocking
 * form of the call returns; calling it again returns the same again. */
DL_API dl_status dl_work_wait(dl_work* work);
/* *done becomes 1 when complete, also when it failed (dl_work_wait then says so), else 0. Makes
 * what progress is possible; see dlaunch/work.hpp for when that may take time. */
DL_API dl_status dl_work_test(dl_work* work, int* done);
/* 1 when complete, else 0; makes no progress. 1 for null. */
DL_API int dl_work_done(const dl_work* work);
/* The same as dl_work_wait for `limit_ms` at most; zero or less only looks. *done becomes 1 when
 * complete, also when it failed (dl_work_wait then says so), and 0 when it goes on: that fails no
 * call. */
DL_API dl_status dl_work_wait_for(dl_work* work, int64_t limit_ms, int* done);
/* Waits until one of `count` works is complete, also when it failed: *index is the lowest such.
 * Null ones are passed over; *index becomes `count` where none is left, or when `limit_ms` has
 * passed, which fails no call. */
DL_API dl_status dl_work_wait_any(dl_work* const* works, size_t count, int64_t limit_ms,
                                  size_t* index);
/* The same, and gives all that are complete by then, in their order: *complete of them, in the
 * first places of `indices`, which has `count`. Those that were dealt with are to be freed and made
 * null, or they come again. */
DL_API dl_status dl_work_wait_some(dl_work* const* works, size_t count, int64_t limit_ms,
                                   size_t* indices, size_t* complete);
/* dl_work_wait_any that waits for nothing, as dl_work_test. */
DL_API dl_status dl_work_test_any(dl_work* const* works, size_t count, size_t* index);
/* *done becomes 1 when all are complete, also when they failed, else 0. Tests each. */
DL_API dl_status dl_work_test_all(dl_work* const* works, size_t count, int* done);
/* Waits for all, whatever becomes of any, and returns what the first that failed returns. Null ones
 * are passed over. */
DL_API dl_status dl_work_wait_all(dl_work* const* works, size_t count);
/* Takes back a receive that no message has come for: *cancelled becomes 1, and dl_work_wait returns
 * DL_ABORTED from then on, which does not stick. It becomes 0 where the receive is complete, or a
 * message is on its way into its buffer. DL_UNSUPPORTED for sends and collectives. */
DL_API dl_status dl_work_cancel(dl_work* work, int* cancelled);
/* Called once when a call has ended, with what dl_work_wait returns for it, and the sentence of
 * what went wrong ("" for DL_OK), which lives until it returns. */
typedef void (*dl_completion)(void* argument, dl_status status, const char* message);
/* For started collectives with host buffers, else DL_UNSUPPORTED. Called on the thread that ended
 * the call: the communicator's own, one that waits for this work or for a later call, or the one in
 * dl_comm_free; if the call is complete already, on this one, before this returns. dl_work_wait
 * returns, and the communicator's next collective begins, only after it has returned. It may call
 * anything but what waits for this communicator's started calls, which is DL_MISUSE there. */
DL_API dl_status dl_work_on_complete(dl_work* work, dl_completion completion, void* argument);
/* Lets `cuda_stream` (a cudaStream_t) wait for the result while the host goes on. For host buffers:
 * DL_UNSUPPORTED; call dl_work_wait. */
DL_API dl_status dl_work_order_before(dl_work* work, void* cuda_stream);
/* Waits until complete, then frees. An error is not lost: it sticks to the communicator and is
 * returned by its next call. Null is fine. */
DL_API void dl_work_free(dl_work* work);

/* The started forms: the same meaning, in the order of starting. */
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

/* inout[i] = in[i] op inout[i], here and now, by what the calls reduce with; no communicator. Both
 * may be the same memory. DL_MISUSE: DL_MEAN and DL_PREMUL_SUM, which are of all ranks at once;
 * buffers that differ. DL_UNSUPPORTED for CUDA buffers. */
DL_API dl_status dl_reduce_local(dl_const_view in, dl_view inout, dl_reduction reduction);

#ifdef __cplusplus
}
#endif
