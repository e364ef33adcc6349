/* What latency.py compares Python's calls with: the same calls from C, in the same process. */
#include <dlaunch/dlaunch.h>

#include <time.h>

double seconds_of_calls(dl_comm* comm, int calls);

double seconds_of_calls(dl_comm* comm, int calls) {
  float value = 1;
  struct timespec begin;
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int i = 0; i < calls; ++i) {
    if (dl_all_reduce(comm, DL_VIEW(&value, 1), dl_op(DL_MAX), DL_HERE) != DL_OK) return -1;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) * 1e-9;
}
