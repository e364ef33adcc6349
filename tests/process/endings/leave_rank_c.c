/* As leave_rank, by the C API: `leave_rank_c CALL ELEMENTS`. */
#include <dlaunch/dlaunch.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOT = 0 };

typedef struct {
  dl_comm* comm;
  size_t size, rank, count;
  float *in, *out;
  size_t *counts, *own_counts; /* count + r of rank r; what this rank has, size times. */
  size_t sum;
} ranks_data;

static dl_const_view input(const ranks_data* data, size_t count) {
  const dl_const_view view = DL_CONST_VIEW(data->in, count);
  return view;
}

static dl_view output(const ranks_data* data, size_t count) {
  const dl_view view = DL_VIEW(data->out, count);
  return view;
}

static dl_status make_even_call(const char* call, const ranks_data* d, int* found) {
  const size_t n = d->count, all = d->count * d->size;
  const dl_options* plain = DL_HERE;
  if (strcmp(call, "barrier") == 0) return dl_barrier(d->comm, plain);
  if (strcmp(call, "broadcast") == 0) return dl_broadcast(d->comm, output(d, n), ROOT, plain);
  if (strcmp(call, "reduce") == 0) {
    return dl_reduce(d->comm, input(d, n), output(d, n), ROOT, dl_op(DL_SUM), plain);
  }
  if (strcmp(call, "all_reduce") == 0) {
    return dl_all_reduce(d->comm, output(d, n), dl_op(DL_SUM), plain);
  }
  if (strcmp(call, "all_gather") == 0) {
    return dl_all_gather(d->comm, input(d, n), output(d, all), plain);
  }
  if (strcmp(call, "gather") == 0) {
    return dl_gather(d->comm, input(d, n), output(d, all), ROOT, plain);
  }
  if (strcmp(call, "scatter") == 0) {
    return dl_scatter(d->comm, input(d, all), output(d, n), ROOT, plain);
  }
  if (strcmp(call, "reduce_scatter") == 0) {
    return dl_reduce_scatter(d->comm, input(d, all), output(d, n), dl_op(DL_SUM), plain);
  }
  if (strcmp(call, "all_to_all") == 0) {
    return dl_all_to_all(d->comm, input(d, all), output(d, all), plain);
  }
  *found = 0;
  return DL_OK;
}

static dl_status make_uneven_call(const char* call, const ranks_data* d, int* found) {
  const size_t mine = d->counts[d->rank];
  const dl_options* plain = DL_HERE;
  if (strcmp(call, "all_gather_v") == 0) {
    return dl_all_gather_v(d->comm, input(d, mine), output(d, d->sum), d->counts, plain);
  }
  if (strcmp(call, "gather_v") == 0) {
    return dl_gather_v(d->comm, input(d, mine), output(d, d->sum), d->counts, ROOT, plain);
  }
  if (strcmp(call, "scatter_v") == 0) {
    return dl_scatter_v(d->comm, input(d, d->sum), output(d, mine), d->counts, ROOT, plain);
  }
  if (strcmp(call, "reduce_scatter_v") == 0) {
    return dl_reduce_scatter_v(d->comm, input(d, d->sum), output(d, mine), d->counts, dl_op(DL_SUM),
                               plain);
  }
  if (strcmp(call, "all_to_all_v") == 0) {
    return dl_all_to_all_v(d->comm, input(d, d->sum), d->counts, output(d, mine * d->size),
                           d->own_counts, plain);
  }
  *found = 0;
  return DL_OK;
}

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const char* call = argv[1];
  dl_world* world = NULL;
  ranks_data d = {0};
  dl_status status = dl_world_from_env(NULL, &world);
  if (status == DL_OK) status = dl_comm_create(world, NULL, &d.comm);
  if (status != DL_OK) return 1;
  d.size = (size_t)dl_comm_size(d.comm);
  d.rank = (size_t)dl_comm_rank(d.comm);
  d.count = (size_t)atoll(argv[2]);
  const size_t room = (d.count + d.size) * d.size * sizeof(float);
  d.in = calloc(1, room);
  d.out = calloc(1, room);
  d.counts = malloc(d.size * sizeof *d.counts);
  d.own_counts = malloc(d.size * sizeof *d.own_counts);
  if (d.in == NULL || d.out == NULL || d.counts == NULL || d.own_counts == NULL) return 1;
  for (size_t rank = 0; rank < d.size; ++rank) {
    d.sum += d.counts[rank] = d.count + rank;
    d.own_counts[rank] = d.count + d.rank;
  }
  int found = 1;
  status = make_even_call(call, &d, &found);
  if (!found) {
    found = 1;
    status = make_uneven_call(call, &d, &found);
  }
  if (!found) return 64;
  if (status != DL_OK) {
    fprintf(stderr, "leave_rank_c: %s\n", dl_last_message(NULL));
    return 3;
  }
  dl_comm_free(d.comm);
  dl_world_free(world);
  free(d.in);
  free(d.out);
  free(d.counts);
  free(d.own_counts);
  return 0;
}
