#pragma once

#include <dlaunch/c/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Point to point. Messages between two ranks with one tag arrive in the order sent. DL_MISUSE:
 * no such rank, or a tag that is none. A message that nobody receives yet is kept, up to 16 MiB of
 * each source; beyond that its sender waits. While a rank waits for a later one of that source
 * everything before it is kept, so tags may be received in any order: it takes that much memory.
 * In C: the tag is dl_options.tag. See dl_comm for threads, buffers and errors. ---- */

/* What a received message was. */
typedef struct dl_received {
  int32_t source;
  int32_t tag;
  dl_dtype dtype;
  int32_t reserved;
  size_t count; /* Elements. */
} dl_received;

/* Returns when `data` may be used again. A message that fits the kernel's socket buffer does not
 * wait for the receiver; a larger one may. Sending to oneself is buffered. DL_MISMATCH: the receive
 * that took it was for another count or dtype; from a later call, where this one did not wait. */
DL_API dl_status dl_send(dl_comm* comm, dl_const_view data, int to, const dl_options* options);
/* Returns when the receiver has received it, whatever its size. To oneself: a dl_irecv has to be
 * there. Errors as those of dl_send; DL_UNSUPPORTED for CUDA buffers. */
DL_API dl_status dl_ssend(dl_comm* comm, dl_const_view data, int to, const dl_options* options);
/* Receives exactly data.count elements of its dtype; DL_MISMATCH for anything else, on both sides.
 * `from` may be DL_ANY_SOURCE, the tag DL_ANY_TAG.
 * In C: `received` may be null. */
DL_API dl_status dl_recv(dl_comm* comm, dl_view data, int from, dl_received* received,
                         const dl_options* options);
/* Receives data.count elements at most; the rest of `data` is not written. DL_MISUSE: the message
 * has more. It stays, and the first receive that has room for it takes it. DL_MISMATCH: another
 * dtype. DL_UNSUPPORTED for CUDA buffers.
 * In C: `received` may be null. */
DL_API dl_status dl_recv_up_to(dl_comm* comm, dl_view data, int from, dl_received* received,
                               const dl_options* options);
/* Sends `out` and receives `in`, both at once and by one tag: ranks that exchange, or pass data
 * round a ring, do not wait for each other's receives. Errors as those of dl_send and dl_recv.
 * In C: `received` may be null. */
DL_API dl_status dl_sendrecv(dl_comm* comm, dl_const_view out, int to, dl_view in, int from,
                             dl_received* received, const dl_options* options);
/* The same with the errors of dl_recv_up_to: `in` is the most it receives.
 * In C: `received` may be null. */
DL_API dl_status dl_sendrecv_up_to(dl_comm* comm, dl_const_view out, int to, dl_view in, int from,
                                   dl_received* received, const dl_options* options);
/* The same, without waiting. A message that can leave at once has left when dl_isend returns, and
 * one that has come is there when dl_irecv does.
 * In C: messages that have left may share a handle; it is freed once for each of them. */
DL_API dl_status dl_isend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                          const dl_options* options);
DL_API dl_status dl_issend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                           const dl_options* options);
DL_API dl_status dl_irecv(dl_comm* comm, dl_view data, int from, dl_work** work,
                          const dl_options* options);
DL_API dl_status dl_irecv_up_to(dl_comm* comm, dl_view data, int from, dl_work** work,
                                const dl_options* options);
/* What the message was that a dl_irecv has received, or would not take because it is too long, or
 * that a dl_start_probe has found. Gives none where it goes on, has failed otherwise, or is
 * neither.
 * In C: *found becomes 1, or 0 for none. `received`, which may be null, is written if *found
 * becomes 1. */
DL_API dl_status dl_work_received(const dl_work* work, int* found, dl_received* received);

/* One message of a batch. */
typedef struct dl_transfer {
  dl_const_view out; /* To send; else empty. */
  dl_view in;        /* To receive; else empty. */
  int32_t peer;
  int32_t tag;
  int32_t is_send;
  int32_t up_to; /* Receives fewer elements, too. */
} dl_transfer;

static inline dl_transfer dl_make_send(dl_const_view data, int32_t to, int32_t tag) {
  dl_transfer transfer = {data, {NULL, 0, 1, DL_U8, DL_HOST}, to, tag, 1, 0};
  return transfer;
}
static inline dl_transfer dl_make_recv(dl_view data, int32_t from, int32_t tag) {
  dl_transfer transfer = {{NULL, 0, 1, DL_U8, DL_HOST}, data, from, tag, 0, 0};
  return transfer;
}
static inline dl_transfer dl_make_recv_up_to(dl_view data, int32_t from, int32_t tag) {
  dl_transfer transfer = {{NULL, 0, 1, DL_U8, DL_HOST}, data, from, tag, 0, 1};
  return transfer;
}

/* Starts all before it waits for any, so that exchanges cannot block each other. Each goes by the
 * tag that it has itself. Errors as those of dl_send and dl_recv; DL_MISUSE of any is found before
 * the first has begun.
 * In C: the tag of `options` does not count. */
DL_API dl_status dl_batch(dl_comm* comm, const dl_transfer* transfers, size_t count,
                          const dl_options* options);
/* works[i] becomes that of transfers[i]. */
DL_API dl_status dl_start_batch(dl_comm* comm, const dl_transfer* transfers, size_t count,
                                dl_work** works, const dl_options* options);

/* Waits until a message that a dl_recv with these arguments would take has begun to arrive. It
 * takes nothing, so DL_TIMEOUT breaks nothing where the options have a timeout of their own; so
 * with dl_start_probe and dl_match. */
DL_API dl_status dl_probe(dl_comm* comm, int from, dl_received* received,
                          const dl_options* options);
/* The same without waiting.
 * In C: `received`, which may be null, is written if *found becomes 1. */
DL_API dl_status dl_try_probe(dl_comm* comm, int from, int* found, dl_received* received,
                              const dl_options* options);

/* The same as a call that goes on beside others, for dl_work_wait_any over probes and receives:
 * dl_work_received says what was found. It takes nothing. What a receive takes that was posted
 * before the message came is not found. dl_work_cancel it where nothing may come any more, as
 * dl_work_free waits. */
DL_API dl_status dl_start_probe(dl_comm* comm, int from, dl_work** work, const dl_options* options);

/* A message that dl_match has found and dl_recv_matched receives: no other receive takes it, and no
 * probe finds it. One that is freed before it was received goes back to where it was, before all
 * that came behind it. For the thread that uses its communicator, which it may outlive; nothing is
 * left to do then. */
typedef struct dl_message dl_message;

/* As dl_probe, and sets the message apart for dl_recv_matched: what was probed may be another
 * receive's by the time of a dl_recv, where several are under way. */
DL_API dl_status dl_match(dl_comm* comm, int from, dl_message** message, const dl_options* options);
/* The same without waiting.
 * In C: `message` is written if *found becomes 1. */
DL_API dl_status dl_try_match(dl_comm* comm, int from, int* found, dl_message** message,
                              const dl_options* options);
/* Its source, tag, type and count. An empty one has no source: DL_ANY_SOURCE.
 * In C: it is empty once it was received. */
DL_API dl_status dl_message_what(const dl_message* message, dl_received* received);
/* Receives it into the first elements of `data`; `message` is empty then. DL_MISUSE, after which
 * `message` is as it was: it is empty, or another communicator's; `data` is shorter, or of another
 * dtype. DL_UNSUPPORTED for CUDA buffers.
 * In C: a message that is empty is to be freed all the same. `received` may be null. */
DL_API dl_status dl_recv_matched(dl_comm* comm, dl_message* message, dl_view data,
                                 dl_received* received, const dl_options* options);
/* One that was not received goes back to where it was, before all that came behind it. Null is
 * fine. */
DL_API void dl_message_free(dl_message* message);

#ifdef __cplusplus
}
#endif
