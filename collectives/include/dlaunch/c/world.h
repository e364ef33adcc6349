#pragma once

#include <dlaunch/c/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A rank's place in the world and the store through which it meets the others. Nothing is global:
 * one process may hold several (tests run ranks as threads). Safe to read from any thread. */
typedef struct dl_world dl_world;
typedef struct dl_store dl_store;
typedef struct dl_store_ops dl_store_ops; /* store.h */

typedef struct dl_init_options {
  size_t struct_size; /* sizeof(dl_init_options). */
  int64_t timeout_ms; /* For all ranks to have arrived; 0: five minutes. */
  /* For tcp:// and file://, where the URL does not say. world_size 0: take RANK, WORLD_SIZE. */
  int32_t rank;
  int32_t world_size;
  /* Rank 0 of a world without a launcher hosts the store: how long freeing its last handle waits
   * for the others to be done with it. 0: 30 s; negative: not at all. */
  int64_t linger_ms;
} dl_init_options;

/* Joins the world `url` names and returns when all ranks have arrived:
 *   dlaunch://        a worker of our launcher
 *   env://            what the environment says: our launcher's, else the four variables
 *                     MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, and rank 0 hosts the store
 *   tcp://host:port?rank=R&world_size=N    the same, spelled out
 *   file://path?rank=R&world_size=N        a file that all ranks see; rank 0 writes where it
 *                                          listens, and removes it when all have come
 * A world of one rank, other than a launcher's, needs no address and opens no socket. A process
 * joins a launcher's world once, and makes all its communicators of that dl_world: a second
 * dl_world_init would wait for nobody, and meet what is left of the first.
 *
 * dl_world_free tells the others that this rank left in order; ending without that, or by
 * dl_world_abandon, is a loss to them. A forked child may not use its parent's dl_world
 * (DL_MISUSE).
 *
 * DL_MISUSE names the missing or wrong variable; DL_REFUSED: a duplicate rank or a disagreement on
 * the size; DL_UNREACHABLE; DL_TIMEOUT lists who did not come and who did. */
DL_API dl_status dl_world_init(const char* url, const dl_init_options* options, dl_world** world);
/* env:// if the environment has a rank, from our launcher, by hand, from mpirun or srun; else a
 * world of one. */
DL_API dl_status dl_world_from_env(const dl_init_options* options, dl_world** world);

/* This process among its peers. */
typedef struct dl_world_info {
  size_t struct_size; /* sizeof(dl_world_info). */
  int32_t rank;       /* 0..size-1, over all nodes. */
  int32_t size;
  int32_t local_rank; /* 0..local_size-1, on this node. */
  int32_t local_size;
  int32_t node_rank; /* 0..node_count-1. */
  int32_t node_count;
  uint64_t epoch;  /* Grows with every new rank map of the job; 0 without a launcher. */
  int32_t attempt; /* How often the workers were restarted after a failure. */
  int32_t reserved;
  const char* job; /* The job's id; "" without a launcher. */
  const char* hostname;
  const char* master_addr;
  const char* master_port;
  const char* init_method; /* The URL really used. */
} dl_world_info;

/* A world of `info` whose ranks meet through a store of the program's own, say PyTorch's: see
 * dl_store_ops, which is copied; `self` is given to its functions. Ranks that make worlds from one
 * store give each of them keys of its own. A local_size of 0 means that each rank is on a node of
 * its own; null text is empty. The ranks' connections go over loopback: such a world lies within
 * one machine. On failure `release` is not called. */
DL_API dl_status dl_world_from_store(const dl_world_info* info, const dl_store_ops* ops, void* self,
                                     dl_world** world);

/* Ends this rank's part in order, once its communicators, stores and works are freed too: the
 * others see that it has left. A process that ends without it is lost to them, as it should be
 * after an error: then return from main, or call dl_world_abandon. Null is fine. */
DL_API void dl_world_free(dl_world* world);
/* Frees it without a goodbye: the others see that this rank was lost. Free the communicators first.
 * Rank 0 of a world without a launcher still lets the others read for a moment why. */
DL_API void dl_world_abandon(dl_world* world);

/* Fills `info`, whose struct_size the caller has set. Its text lives as long as the world. */
DL_API dl_status dl_world_get_info(const dl_world* world, dl_world_info* info);
DL_API int dl_world_rank(const dl_world* world); /* -1 for null. */
DL_API int dl_world_size(const dl_world* world); /* 0 for null. */
/* The store through which the ranks meet; to be freed, and part of the world until then. */
DL_API dl_status dl_world_store(const dl_world* world, dl_store** store);

/* What this process knows about itself and its job, as a JSON object of the thirteen fields that
 * PyTorch programs print, in the order of dlaunch/process_info.hpp; `indent` spaces a level, or
 * all in one line if negative. Free `text` with dl_free. */
DL_API dl_status dl_process_info_json(const dl_world* world, int indent, char** text);

/* Part of the program's work; 0 for success. */
typedef int (*dl_block)(void* argument);

/* Runs `block` on rank 0 first (with `local`: on local rank 0 of each node), then on all others;
 * all leave together. If the block fails on the first one, every other rank returns DL_ABORTED with
 * its text, at once, instead of waiting; if it fails on another one, all the others do when all are
 * done. Every rank must call it, in the same order.
 * In C: a block fails by returning anything but 0, which is DL_ABORTED on its own rank, too.
 * timeout_ms 0: 30 minutes. */
DL_API dl_status dl_rank_zero_first(const dl_world* world, dl_block block, void* argument,
                                    int local, int64_t timeout_ms);

#ifdef __cplusplus
}
#endif
