#pragma once

#include <dlaunch/c/collectives.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Point to point. Messages between two ranks with one tag (dl_options.tag) arrive in the order
 * sent. See dl_comm for threads, buffers and errors. ---- */

/* What a received message was. */
typedef struct dl_received {
  int32_t source;
  int32_t tag;
  dl_dtype dtype;
  int32_t reserved;
  size_t count; /* Elements. */
} dl_received;

/* Returns when `data` may be used again. A message that fits the kernel's socket buffer does not
 * wait for the receiver; a larger one may. Sending to oneself is buffered. */
DL_API dl_status dl_send(dl_comm* comm, dl_const_view data, int to, const dl_options* options);
/* Receives exactly data.count elements of its dtype; anything else is DL_MISMATCH on both sides.
 * `from` may be DL_ANY_SOURCE, the tag DL_ANY_TAG. `received` may be null. */
DL_API dl_status dl_recv(dl_comm* comm, dl_view data, int from, dl_received* received,
                         const dl_options* options);
/* Sends `out` and receives `in`, both at once and by one tag. */
DL_API dl_status dl_sendrecv(dl_comm* comm, dl_const_view out, int to, dl_view in, int from,
                             dl_received* received, const dl_options* options);
DL_API dl_status dl_isend(dl_comm* comm, dl_const_view data, int to, dl_work** work,
                          const dl_options* options);
DL_API dl_status dl_irecv(dl_comm* comm, dl_view data, int from, dl_work** work,
                          const dl_options* options);

/* One message of a batch. */
typedef struct dl_transfer {
  dl_const_view out; /* To send; else empty. */
  dl_view in;        /* To receive; else empty. */
  int32_t peer;
  int32_t tag;
  int32_t is_send;
  int32_t reserved; /* 0. */
} dl_transfer;

static inline dl_transfer dl_make_send(dl_const_view data, int32_t to, int32_t tag) {
  dl_transfer transfer = {data, {NULL, 0, 1, DL_U8, DL_HOST}, to, tag, 1, 0};
  return transfer;
}
static inline dl_transfer dl_make_recv(dl_view data, int32_t from, int32_t tag) {
  dl_transfer transfer = {{NULL, 0, 1, DL_U8, DL_HOST}, data, from, tag, 0, 0};
  return transfer;
}

/* Starts all before it waits for any, so that exchanges cannot block each other. The transfers'
 * own tags count, not that of `options`. */
DL_API dl_status dl_batch(dl_comm* comm, const dl_transfer* transfers, size_t count,
                          const dl_options* options);
/* works[i] becomes that of transfers[i]. */
DL_API dl_status dl_start_batch(dl_comm* comm, const dl_transfer* transfers, size_t count,
                                dl_work** works, const dl_options* options);

/* Waits until a message that a dl_recv with these arguments would take has begun to arrive. */
DL_API dl_status dl_probe(dl_comm* comm, int from, dl_received* received,
                          const dl_options* options);
/* The same without waiting; `received`, which may be null, is written if *found becomes 1. */
DL_API dl_status dl_try_probe(dl_comm* comm, int from, int* found, dl_received* received,
                              const dl_options* options);

#ifdef __cplusplus
}
#endif
