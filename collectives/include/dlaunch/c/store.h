#pragma once

#include <dlaunch/c/world.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The key-value store through which the ranks of a job meet: a map of byte strings with counters,
 * queues and a few operations that spare N processes N round trips. A key is text of up to 8 KiB, a
 * value has up to 8 MiB. Any thread may call at any time; a waiting call does not hold up others.
 *
 * Every call may fail with DL_UNREACHABLE or DL_PEER_LOST when the server cannot be reached,
 * DL_REFUSED with the server's reason, DL_TIMEOUT where a timeout is taken (0: look once; negative:
 * DL_MISUSE). A call whose connection breaks is repeated and still counts once. With a store of the
 * program's own, leases, lists, queues and watch are DL_UNSUPPORTED.
 *
 * dl_bytes that a call fills are to be freed with dl_bytes_free. */

/* The world keeps its own; null is fine. */
DL_API void dl_store_free(dl_store* store);

DL_API dl_status dl_store_set(dl_store* store, const char* key, const void* value, size_t bytes);
/* The key disappears when this process has not been heard of for `lease_ms` (100 ms to 1 h); as
 * long as the store lives, it renews the lease by itself.
 * In C: the store lives as long as the world. */
DL_API dl_status dl_store_set_leased(dl_store* store, const char* key, const void* value,
                                     size_t bytes, int64_t lease_ms);
/* Absent is an answer, not an error.
 * In C: value->data is null then. */
DL_API dl_status dl_store_get(dl_store* store, const char* key, dl_bytes* value);
/* Waits until the key exists and gives its value. */
DL_API dl_status dl_store_wait(dl_store* store, const char* key, int64_t timeout_ms,
                               dl_bytes* value);
/* Waits until all keys exist. A timeout names the missing ones. */
DL_API dl_status dl_store_wait_all(dl_store* store, const char* const* keys, size_t count,
                                   int64_t timeout_ms);
/* Adds to a decimal counter (absent counts as 0) and gives the sum.
 * In C: `sum` may be null. */
DL_API dl_status dl_store_add(dl_store* store, const char* key, int64_t delta, int64_t* sum);
/* Stores `desired` if the current value is `expected`; none stands for absent. *stored becomes 1 if
 * it did.
 * In C: null for `expected` is none; an empty value is a pointer to anything with 0 bytes. */
DL_API dl_status dl_store_compare_set(dl_store* store, const char* key, const void* expected,
                                      size_t expected_bytes, const void* desired,
                                      size_t desired_bytes, int* stored);
/* Appends to the value (absent counts as empty); gives the new size in bytes.
 * In C: `size` may be null. */
DL_API dl_status dl_store_append(dl_store* store, const char* key, const void* tail, size_t bytes,
                                 size_t* size);
/* *existed becomes 1 if the key existed.
 * In C: `existed` may be null. */
DL_API dl_status dl_store_erase(dl_store* store, const char* key, int* existed);
/* The keys that begin with `prefix`, sorted.
 * In C: they lie in one piece of memory: free `keys` with dl_free. */
DL_API dl_status dl_store_list(dl_store* store, const char* prefix, char*** keys, size_t* count);

/* values[i] of keys[i]; its data is null where the key is absent. */
DL_API dl_status dl_store_multi_get(dl_store* store, const char* const* keys, size_t count,
                                    dl_bytes* values);
DL_API dl_status dl_store_multi_set(dl_store* store, const char* const* keys,
                                    const dl_bytes* values, size_t count);

/* Queues are first-in first-out and live beside the map, under names of their own. */
DL_API dl_status dl_store_push(dl_store* store, const char* queue, const void* value, size_t bytes);
DL_API dl_status dl_store_pop(dl_store* store, const char* queue, int64_t timeout_ms,
                              dl_bytes* value);
/* value->data is null where the queue is empty. */
DL_API dl_status dl_store_try_pop(dl_store* store, const char* queue, dl_bytes* value);
DL_API dl_status dl_store_queue_size(dl_store* store, const char* queue, size_t* size);

/* What happened to a watched key. */
typedef enum dl_change { DL_CREATED = 0, DL_UPDATED = 1, DL_DELETED = 2 } dl_change;
/* Waits for the next change of `key` after the last one this store object told of (the first call:
 * after the call). Over a connection that breaks, the outcome of what was missed comes as one
 * change.
 * In C: `value` is the new one; its data is null when deleted. */
DL_API dl_status dl_store_watch(dl_store* store, const char* key, int64_t timeout_ms,
                                dl_change* change, dl_bytes* value);

/* Returns when `count` different contributors have arrived under this name; may be used again at
 * once. A timeout names who is missing. `contributor` is 0..count-1, a rank. */
DL_API dl_status dl_store_barrier(dl_store* store, const char* name, int contributor, int count,
                                  int64_t timeout_ms);
/* The same, and everyone gets everyone's bytes, in order of contributor.
 * In C: blobs[i] is that of contributor i. */
DL_API dl_status dl_store_all_gather(dl_store* store, const char* name, int contributor, int count,
                                     const void* blob, size_t bytes, int64_t timeout_ms,
                                     dl_bytes* blobs);

/* ---- A store of the program's own, through which our ranks find each other. ---- */

/* What such a store can do: the same as the calls above, all of them there. They may be called from
 * any thread, and by several at once; `self` is what was given to dl_world_from_store. Values are
 * handed out by dl_bytes_copy; `value` is {NULL, 0} when a function is called. A timeout_ms of
 * INT64_MAX has no end. Any status but DL_OK fails the call that needed the store, with that
 * status. */
struct dl_store_ops {
  size_t struct_size; /* sizeof(dl_store_ops). */
  dl_status (*set)(void* self, const char* key, const void* value, size_t bytes);
  dl_status (*get)(void* self, const char* key, dl_bytes* value);
  dl_status (*wait)(void* self, const char* key, int64_t timeout_ms, dl_bytes* value);
  dl_status (*add)(void* self, const char* key, int64_t delta, int64_t* sum);
  dl_status (*compare_set)(void* self, const char* key, const void* expected, size_t expected_bytes,
                           const void* desired, size_t desired_bytes, int* stored);
  dl_status (*erase)(void* self, const char* key, int* existed);
  /* Why the calling thread's last call failed, as text that lives until its next; may be null. */
  const char* (*last_message)(void* self);
  /* Called once, when the world and all that was made from it are gone; may be null. */
  void (*release)(void* self);
};

#ifdef __cplusplus
}
#endif
