#pragma once

#include <dlaunch/c/tensor.h>
#include <dlaunch/c/world.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A group of ranks that make the same calls in the same order.
 *
 * Threads: a communicator is for one thread at a time; dl_comm_abort alone may come from any.
 * Several threads may each use one of their own, also where those were made from each other by
 * split, duplicate and group. After a call was started, threads of the library move it, and call
 * the program's custom reductions.
 *
 * Processes: a forked child has no part in its parent's communicators. Every call there is
 * DL_MISUSE; that it ends, or frees its copies, is noticed by nobody.
 *
 * Order: a communicator's collectives run in the order in which they were called or started, one at
 * a time. A blocking one waits for those started before it, then runs on the caller's thread.
 * Messages go beside them, in no order with collectives.
 *
 * Buffers are read and written in place, stay the caller's, and may not overlap unless a call says
 * so; views of them are not kept. Empty buffers are fine. In a world of one every call works and
 * needs no network. Counts are in elements, ranks are this communicator's own (0..size-1).
 *
 * Errors: every rank's call carries what it is (name, sequence number, dtype, count, root,
 * reduction); ranks that disagree all get DL_MISMATCH that shows both calls, and so do ranks that
 * wait for each other in different calls, where no other thread can end that. A wrong argument is
 * DL_MISUSE before anything is sent, and the ranks that wait for this one get DL_MISMATCH. A dead
 * peer: DL_PEER_LOST with its rank and the cause. A call that takes longer than its timeout:
 * DL_TIMEOUT with the ranks that did not come and what they were last seen doing. After
 * dl_comm_abort: DL_ABORTED. The first error (save DL_MISUSE and DL_UNSUPPORTED) sticks: every
 * later call returns it again, here and on the other ranks; make a new communicator, or end. What
 * the buffers hold after an error is not defined.
 *
 * These are the errors of every call, which comments of calls do not repeat; they name what is
 * wrong for them in particular. A buffer is wrong where its data is null and its count is not 0, or
 * where buffers of one call overlap, or differ in dtype: DL_MISUSE.
 *
 * CUDA buffers go by NCCL, on the stream that dl_options.cuda_stream names: a blocking call with a
 * stream returns when it is on it, one without when it is done, and a started one's dl_work is
 * complete when it is done. Both buffers of a call lie on one device, always the same, without
 * strides. The first such call is a collective; all ranks bring NCCL up in it. DL_UNSUPPORTED says
 * what is not there: a library, an element type, an operation, tags. A stream that is being
 * captured gets the call and nothing else; its dl_work never waits. Ranks that disagree are found
 * when their calls are on their streams already, which then are not waited for: NCCL is aborted,
 * also where the program waits in CUDA itself.
 * In C: a null handle, options that are none, and a null pointer for a result are DL_MISUSE before
 * the call begins: the other ranks go on waiting for it. */
typedef struct dl_comm dl_comm;

enum { DL_NO_COLOR = -1 };

/* All ranks of `world`. Nothing is sent: connections are made when first needed. Ranks that make
 * several communicators from one world make them in the same order. `name` is for messages; null:
 * "world". */
DL_API dl_status dl_comm_create(const dl_world* world, const char* name, dl_comm** comm);
/* Ends what is still under way with DL_ABORTED; waits for no rank, but for a custom reduction that
 * is running. Null is fine. */
DL_API void dl_comm_free(dl_comm* comm);

DL_API int dl_comm_rank(const dl_comm* comm);         /* -1 for null. */
DL_API int dl_comm_size(const dl_comm* comm);         /* 0 for null. */
DL_API const char* dl_comm_name(const dl_comm* comm); /* Lives as long as it; "" for null. */
/* For calls whose options give none. More than zero. */
DL_API dl_status dl_comm_set_timeout(dl_comm* comm, int64_t timeout_ms);
DL_API int64_t dl_comm_timeout_ms(const dl_comm* comm); /* 0 for null. */
/* How long calls of this communicator, and of those made from it later, may wait before the
 * launcher says which ranks wait and what the absent ones do; the calls go on waiting. Zero: it
 * never does. Unless set it is the launcher's --stuck-after. If ranks set it differently, the first
 * to have waited for long enough counts. Not negative. */
DL_API dl_status dl_comm_set_stuck_after(dl_comm* comm, int64_t stuck_after_ms);

/* ---- Memory in which collectives work in place. ---- */

/* Memory from dl_comm_allocate. If the ranks of a node share memory it lies there, and collectives
 * whose ranks all pass such buffers read and write them directly: nothing is copied on the way.
 * Otherwise it is ordinary memory. Used like any other; its initial contents are not defined. May
 * outlive its communicator and its world; free it when no call uses it any more, on any rank. */
typedef struct dl_buffer dl_buffer;

/* Memory for this rank's part of collectives, the fastest there is for this communicator's ranks;
 * see dl_buffer. Needs no other rank. DL_INTERNAL where there is too little. */
DL_API dl_status dl_comm_allocate(dl_comm* comm, size_t bytes, dl_buffer** buffer);
/* The same on a CUDA device. DL_UNSUPPORTED where the driver or NCCL is not there.
 * In C: NCCL's own memory where it has an allocator, which that communicator's calls move without
 * copies. The host cannot look into it; views of it have `place` DL_CUDA(device). */
DL_API dl_status dl_comm_allocate_device(dl_comm* comm, size_t bytes, int32_t device,
                                         dl_buffer** buffer);
/* Called by all ranks, each with its device: NCCL comes up now, and not in the first collective
 * with CUDA buffers; so that may be captured, and a message be the first call. If NCCL is up, it is
 * only a barrier. Waits for the default stream, and cannot be captured. DL_UNSUPPORTED where CUDA
 * buffers are not. */
DL_API dl_status dl_comm_prepare_device(dl_comm* comm, int32_t device, const dl_options* options);
/* Aligned to 128 bytes at least, to pages from 4 KiB on. Null for null. */
DL_API void* dl_buffer_data(const dl_buffer* buffer);
DL_API size_t dl_buffer_bytes(const dl_buffer* buffer); /* 0 for null. */
/* 1: the ranks of the node share it. 0 for null. */
DL_API int dl_buffer_is_shared(const dl_buffer* buffer);
/* When no call uses it any more, on any rank. Null is fine. */
DL_API void dl_buffer_free(dl_buffer* buffer);

/* ---- Groups. Each takes part of all ranks of this communicator unless it says otherwise. ---- */

/* The ranks that give the same colour, ordered by `key`, then by rank. A rank without a colour
 * takes part and gets none. DL_MISUSE: a negative colour.
 * In C: DL_NO_COLOR stands for no colour; *made becomes null for none. */
DL_API dl_status dl_comm_split(dl_comm* comm, int color, int key, dl_comm** made,
                               const dl_options* options);
/* The ranks listed, in that order. Called by all ranks, with the same list; those not listed get
 * none. DL_MISUSE: no rank, or one listed twice or out of range. DL_MISMATCH: different lists.
 * In C: *made becomes null for none. */
DL_API dl_status dl_comm_group(dl_comm* comm, const int* ranks, size_t count, dl_comm** made,
                               const dl_options* options);
/* The same, called by the listed ranks alone; the others need not know. DL_MISUSE also on a rank
 * that is not listed. Nothing is sent: ranks with different lists make different groups. They find
 * that in the first call in which one waits for another, by its timeout at the latest; a call that
 * waits for nobody, as a broadcast may on its root, ends well. */
DL_API dl_status dl_comm_group_of_members(dl_comm* comm, const int* ranks, size_t count,
                                          dl_comm** made, const dl_options* options);
/* The same ranks with traffic of their own. */
DL_API dl_status dl_comm_duplicate(dl_comm* comm, dl_comm** made, const dl_options* options);
/* This communicator's ranks, in its order, as ranks of the world.
 * In C: `ranks` has room for `capacity`, at least dl_comm_size(comm). */
DL_API dl_status dl_comm_world_ranks(const dl_comm* comm, int* ranks, size_t capacity);
/* This communicator's `rank` as a rank of `other`; none if that one lacks it.
 * In C: *translated becomes -1 for none. A rank that this communicator does not have is
 * DL_MISUSE. */
DL_API dl_status dl_comm_translate(const dl_comm* comm, int rank, const dl_comm* other,
                                   int* translated);

/* ---- Ending, and going on without the dead. After User-Level Failure Mitigation (Bland et al.,
 * "Post-failure recovery of MPI communication capability", IJHPCA 2013). A death breaks every
 * communicator that the dead rank was part of; those who live revoke it, so that nobody waits in
 * it, then shrink it and go on. The launcher leaves them alone with --on-failure continue.
 * docs/collectives.md has the pattern. ---- */

/* From any thread, any number of times, whether or not this rank is in a call. Waits for no rank,
 * and for a moment until word of it has left. Here every pending and later call returns DL_ABORTED;
 * the others get DL_ABORTED or DL_PEER_LOST, those that wait at once. All are told which rank
 * called it. */
DL_API dl_status dl_comm_abort(dl_comm* comm);
/* Makes every call on every rank of this communicator return DL_REVOKED, those that wait included,
 * so that all can meet in dl_comm_shrink. Ranks on which an error sticks already keep that one.
 * Waits for nobody. A rank that revokes and dies at once may not have told all. */
DL_API dl_status dl_comm_revoke(dl_comm* comm);
/* Agrees on the bitwise and of everyone's `flags` among the ranks that live, despite losses, and on
 * a broken or revoked communicator, too; not after dl_comm_abort. Every living rank calls it, in
 * the same order with dl_comm_shrink. All who get an answer get the same one; an error (DL_TIMEOUT,
 * naming who neither came nor is known to be lost; DL_MISMATCH) all get alike. The flags of a rank
 * that died meanwhile may count or not. Costs two entries in the store for each rank, and some 5
 * ms. */
DL_API dl_status dl_comm_agree(dl_comm* comm, uint32_t flags, uint32_t* agreed,
                               const dl_options* options);
/* A communicator of the ranks that live and call this, in their old order, with connections and
 * shared memory of its own: nothing that was under way in the old one reaches it. The others are as
 * in dl_comm_agree. A rank that was taken for lost and lives gets DL_PEER_LOST. One more death
 * meanwhile may go unnoticed here, and breaks the new communicator's first call: shrink that one
 * then. */
DL_API dl_status dl_comm_shrink(dl_comm* comm, dl_comm** made, const dl_options* options);

/* For a loop of the program's own over poll(2), epoll(7) and the like: readable when a started call
 * of this communicator, or of one that was made from it or from which it was made, may have become
 * complete; at first, too. Read it empty (8 bytes at a time, until EAGAIN), then dl_work_test what
 * was started, then wait for it again: nothing is missed in that order. It may be readable without
 * a cause. Always the same one; valid as long as this communicator; not to be closed. Calls with
 * CUDA buffers are not told of. DL_INTERNAL: there is no descriptor left. */
DL_API dl_status dl_comm_descriptor(dl_comm* comm, int* descriptor);

#ifdef __cplusplus
}
#endif
