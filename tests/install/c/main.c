/* A program of somebody else's, who knows no C++. */
#include <dlaunch/dlaunch.h>

#include <stdio.h>

int main(void) {
  dl_world* world = NULL;
  dl_comm* comm = NULL;
  int sum = 0;
  dl_status status = dl_world_from_env(NULL, &world);
  if (status == DL_OK) status = dl_comm_create(world, NULL, &comm);
  if (status == DL_OK) {
    sum = dl_comm_rank(comm) + 1;
    status = dl_all_reduce(comm, DL_VIEW(&sum, 1), dl_op(DL_SUM), DL_HERE);
  }
  if (status != DL_OK) {
    fprintf(stderr, "consumer: %s\n", dl_last_message(NULL));
    return 1;
  }
  if (dl_comm_rank(comm) == 0) printf("C: %d ranks, sum %d\n", dl_comm_size(comm), sum);
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
