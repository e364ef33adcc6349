#include <dlaunch/dlaunch.h>

#include <stdio.h>
#include <stdlib.h>

static int failed(dl_status status) {
  fprintf(stderr, "c_all_reduce: %s\n", dl_last_message(NULL));
  return status == DL_PEER_LOST ? 75 : 1;
}

int main(void) {
  dl_world* world = NULL; /* who am I, and where are the others */
  dl_comm* comm = NULL;
  dl_status status = dl_world_from_env(NULL, &world);
  if (status == DL_OK) status = dl_comm_create(world, NULL, &comm);
  if (status != DL_OK) return failed(status);

  enum { COUNT = 1 << 16 };
  float* gradient = malloc(COUNT * sizeof *gradient);
  if (gradient == NULL) return 1;
  for (size_t i = 0; i < COUNT; ++i) gradient[i] = (float)(dl_comm_rank(comm) + 1);
  status = dl_all_reduce(comm, DL_VIEW(gradient, COUNT), dl_op(DL_MEAN),
                         &DL_OPTIONS(.timeout_ms = 30000));
  if (status != DL_OK) return failed(status); /* without dl_world_free: lost, not left */

  if (dl_comm_rank(comm) == 0) {
    printf("%d ranks, mean %g\n", dl_comm_size(comm), (double)gradient[0]);
  }
  free(gradient);
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
