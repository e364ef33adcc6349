#pragma once

#include <dlaunch/c/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces every rank's gradients by their mean, while the program still computes.
 *
 * A gradient that is ready is divided by the number of ranks and laid into its bucket; when all of
 * a bucket's are, its sum is started (dl_start_all_reduce). Buckets are summed in the same order on
 * all ranks, whatever the order of dl_reducer_ready. Sums have the same bits on all ranks.
 *
 * Made by all ranks, together: compares the parameters, and gives all ranks rank 0's values. Each
 * iteration begins with rank 0's buffers. Parameters are floating-point or complex, gradients and
 * buffers may be strided, all in host memory. For the thread that uses the communicator, which
 * outlives it; freeing the reducer waits for what was started.
 *
 * Or all on one CUDA device: then floating-point without strides, and dl_reducer_ready means that
 * the gradient is complete once what is on dl_reducer_settings.cuda_stream is done. Sums run on a
 * stream of their own. dl_reducer_finish returns at once; what is put on the stream from then on
 * finds the mean. dl_reducer_begin waits for the sums of the iteration before, and so returns what
 * became of them.
 *
 * Errors: DL_MISMATCH on all ranks where their parameters differ, with the first that does.
 * DL_MISUSE for a wrong order of calls; other ranks then get DL_MISMATCH that tells so, and the
 * communicator is broken. Else as the communicator's collectives: what a call here does with other
 * ranks is told with that call's place in the program.
 * In C: calls take the place in the program from dl_options, and nothing else.
 *
 *   dl_reducer_begin(reducer, DL_HERE);
 *   ... as the gradient of each parameter i is computed: dl_reducer_ready(reducer, i, DL_HERE);
 *   dl_reducer_finish(reducer, DL_HERE);    now gradients hold the mean */
typedef struct dl_reducer dl_reducer;

/* A parameter that ranks train together, and its gradient. Views are borrowed for the reducer's
 * life. */
typedef struct dl_parameter {
  const char* name; /* For messages; null: none. Copied. */
  dl_view value;
  /* Has the same dtype and count. Without elements ({0}) the reducer provides it; see
   * dl_reducer_gradient. */
  dl_view gradient;
  /* `axes` extents, whose product is value.count; null: one axis. Copied. */
  const int64_t* shape;
  int32_t axes;
  int32_t reserved; /* 0. */
} dl_parameter;

static inline dl_parameter dl_make_parameter(const char* name, dl_view value, dl_view gradient) {
  dl_parameter parameter = {name, value, gradient, NULL, 0, 0};
  return parameter;
}

/* Every field's zero is what is right for most; dl_make_reducer_settings gives that. */
typedef struct dl_reducer_settings {
  size_t struct_size; /* sizeof(dl_reducer_settings). */
  /* A bucket is full when it has this many bytes: the first one, whose sum begins first, and the
   * others. 0: 1 MiB and 25 MiB. */
  size_t first_bucket_bytes;
  size_t bucket_bytes;
  /* 1: parameters may be without a gradient in an iteration, on some ranks or on all. */
  int32_t find_unused;
  /* 1: buckets are not made anew after the first iteration. */
  int32_t keep_buckets;
  /* For parameters on a CUDA device: the stream of their gradients. It outlives the reducer. */
  void* cuda_stream;
} dl_reducer_settings;

static inline dl_reducer_settings dl_make_reducer_settings(void) {
  dl_reducer_settings settings = {sizeof(dl_reducer_settings), 0, 0, 0, 0, NULL};
  return settings;
}

/* Made by all ranks, together: compares the parameters, and gives all ranks rank 0's values.
 * `buffers` are what ranks have beside parameters and shall have in common (may be null if there
 * are none); `settings` may be null. */
DL_API dl_status dl_reducer_create(dl_comm* comm, const dl_parameter* parameters, size_t count,
                                   const dl_view* buffers, size_t buffer_count,
                                   const dl_reducer_settings* settings, dl_reducer** reducer,
                                   const dl_options* options);
/* Before the forward pass. */
DL_API dl_status dl_reducer_begin(dl_reducer* reducer, const dl_options* options);
/* The gradient of parameters[index] is complete. In any order, each of them once. */
DL_API dl_status dl_reducer_ready(dl_reducer* reducer, size_t index, const dl_options* options);
/* After the backward pass: returns when all gradients hold the mean. With find_unused, parameters
 * that were not ready count as zeros here, and keep their gradient if no rank had one. */
DL_API dl_status dl_reducer_finish(dl_reducer* reducer, const dl_options* options);
/* 0: iterations that begin from now on sum nothing, and gradients stay each rank's own, to be
 * accumulated; 1, as at first: they do. The same on all ranks. */
DL_API dl_status dl_reducer_set_sync(dl_reducer* reducer, int sync);
/* The gradient of parameters[index]: the caller's view, or the memory the reducer provides, which
 * begins as zeros. That memory moves once, with its values, when buckets are made anew: in the
 * dl_reducer_begin after the first iteration that summed. If find_unused finds it unused on this
 * rank, dl_reducer_finish overwrites it. */
DL_API dl_status dl_reducer_gradient(dl_reducer* reducer, size_t index, dl_view* gradient);
/* In which bucket parameter `index` is; they are summed in the order of their numbers. */
DL_API dl_status dl_reducer_bucket(dl_reducer* reducer, size_t index, size_t* bucket);
/* Waits for what was started. Null is fine. */
DL_API void dl_reducer_free(dl_reducer* reducer);

#ifdef __cplusplus
}
#endif
