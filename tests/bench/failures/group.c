/* The same for MPI: group HOW MARK. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void mark(const char* path) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  FILE* file = fopen(path, "w");
  if (file == NULL) return;
  fprintf(file, "%ld.%09ld", (long)now.tv_sec, now.tv_nsec);
  fclose(file);
}

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  const char* how = argv[1];
  int rank, one = 1, sum = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 1) {
    mark(argv[2]);
    if (strcmp(how, "leave") == 0) _exit(0);
    if (strcmp(how, "hang") == 0) sleep(1000);
    if (strcmp(how, "argument") == 0) MPI_Bcast(&one, 1, MPI_INT, 7, MPI_COMM_WORLD);
  }
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
