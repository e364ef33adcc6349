#pragma once

#include <stddef.h>
#include <stdint.h>

/* What libdlaunch.so exports. */
#define DL_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong, as the caller can act on it. The numbers are a contract: the same in C++
 * (dlaunch::Errc), in C and on the wire. */
typedef enum dl_status {
  DL_OK = 0,
  DL_TIMEOUT = 1,         /* A deadline passed. The message names who was missing. */
  DL_PEER_LOST = 2,       /* Another rank, the store or the agent is gone: which, and why. */
  DL_ABORTED = 3,         /* This or another rank called dl_comm_abort. */
  DL_MISMATCH = 4,        /* Ranks disagree on what they are doing. The message shows both calls. */
  DL_UNREACHABLE = 5,     /* A host or port cannot be reached. The message names the failed step. */
  DL_REFUSED = 6,         /* The other side said no. The message carries its reason. */
  DL_MISUSE = 7,          /* The call itself is wrong: an argument, or the order of calls. */
  DL_REVOKED = 8,         /* The communicator was revoked by one of its ranks. */
  DL_UNSUPPORTED = 9,     /* Not available in this build or for these arguments. */
  DL_VERSION = 10,        /* The two sides speak different versions. */
  DL_INTERNAL = 11,       /* An invariant of dlaunch itself was broken, or memory ran out. */
  DL_UNAUTHENTICATED = 12 /* The job's secret was not proved: none, a wrong one, another job's. */
} dl_status;

/* "ok", "timeout", "peer lost"... A static string; never null, also for a number that is none. */
DL_API const char* dl_status_text(dl_status status);

/* What went wrong in the last call that failed on this handle: a whole sentence (what was tried,
 * with whom, what happened, often what to do). "" if none failed. Calls that succeed do not clear
 * it. Never null; valid until the next failing call on the handle, or until it is freed.
 *
 * Worlds, stores and trees may be used by several threads, so each thread hears of its own calls:
 * the calling thread's last failed one if that was on this handle, else "".
 *
 * Null: the last failed call of the calling thread, on whatever handle or on none; valid until its
 * next failing call. */
DL_API const char* dl_last_message(const void* handle);

/* "0.1.0": the version of the library that is loaded, not of the header. A static string. */
DL_API const char* dl_version(void);

/* ---- Memory that calls hand out. ---- */

/* Frees text and lists that a call returned; null is fine. */
DL_API void dl_free(void* memory);

/* Bytes that belong to the caller. `data` is null where there is no value, and not null for an
 * empty one. */
typedef struct dl_bytes {
  void* data;
  size_t size; /* In bytes. */
} dl_bytes;

/* Makes `bytes` a copy of `size` bytes at `data`; what it held is not freed. For dl_store_ops. */
DL_API dl_status dl_bytes_copy(dl_bytes* bytes, const void* data, size_t size);
/* Frees what it holds and sets it to {NULL, 0}. Null is fine. */
DL_API void dl_bytes_free(dl_bytes* bytes);

/* ---- What a call may be told beside its data. ---- */

enum {
  DL_ANY_SOURCE = -1, /* dl_recv, dl_irecv, dl_probe: from whichever rank comes first. */
  DL_ANY_TAG = -1,    /* dl_recv, dl_irecv, dl_probe: whatever the tag. */
  DL_TAG_MAX = 0x7fffffff
};

/* One structure for all calls; a field that is another call's is not looked at. Every field's zero
 * is what is right for most. Null instead of a pointer to it: all zero. */
typedef struct dl_options {
  size_t struct_size; /* sizeof(dl_options). */
  /* The place of this call in the program, shown in messages. The strings must live as long as the
   * process, as literals do; null: not known. */
  const char* file;
  const char* function;
  int32_t line;
  /* Point-to-point only: tells messages between two ranks apart, 0..DL_TAG_MAX. */
  int32_t tag;
  /* How long the call may take; 0: the communicator's default (five minutes unless set). */
  int64_t timeout_ms;
  /* CUDA buffers: the cudaStream_t on which the call is put, behind what is there; null: the legacy
   * default one, and blocking calls wait until it is done. */
  void* cuda_stream;
  /* 1 lets DL_MEAN divide integers and drop the fraction (towards zero). */
  int32_t truncate_mean;
  /* dl_barrier only. 1: first flush stdout and stderr and wait until the launcher has read them,
   * so that what was printed before the barrier appears before what is printed after it, on any
   * rank. 0: do not. */
  int32_t ordered_output;
} dl_options;

/* Options that know where they stand and are otherwise all zero. */
static inline dl_options dl_make_options(const char* file, int32_t line, const char* function) {
  dl_options options = {sizeof(dl_options), file, function, line, 0, 0, NULL, 0, 0};
  return options;
}

#ifndef __cplusplus
/* For C: `dl_barrier(comm, DL_HERE)`, `dl_recv(comm, x, 0, NULL, &DL_OPTIONS(.tag = 7))`. */
#define DL_OPTIONS(...)                            \
  ((dl_options){.struct_size = sizeof(dl_options), \
                .file = __FILE__,                  \
                .line = __LINE__,                  \
                .function = __func__,              \
                __VA_ARGS__})
#define DL_HERE                                     \
  (&(dl_options){.struct_size = sizeof(dl_options), \
                 .file = __FILE__,                  \
                 .line = __LINE__,                  \
                 .function = __func__})
#endif

#ifdef __cplusplus
}
#endif
