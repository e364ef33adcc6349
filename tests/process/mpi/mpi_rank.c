/* A rank of a real MPI program, compiled once by each MPI: mpi_rank MODE. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int sum_of_ranks(int rank, int size) {
  int sum = -1;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return sum == size * (size - 1) / 2;
}

/* Each rank's number goes once around. */
static int ring(int rank, int size) {
  int holds = rank;
  for (int step = 0; step < size; ++step) {
    MPI_Sendrecv_replace(&holds, 1, MPI_INT, (rank + 1) % size, 0, (rank + size - 1) % size, 0,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  return holds == rank;
}

static void spawn(void) {
  MPI_Comm children;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const int failed = MPI_Comm_spawn("true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF,
                                    &children, MPI_ERRCODES_IGNORE) != MPI_SUCCESS;
  printf(failed ? "not spawned\n" : "spawned\n");
}

int main(int argc, char** argv) {
  const char* mode = argc > 1 ? argv[1] : "work";
  int rank = -1, size = -1, there = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (strcmp(mode, "work") == 0) {
    there = sum_of_ranks(rank, size) && ring(rank, size);
    printf("rank %d of %d: %s\n", rank, size, there ? "right" : "wrong");
  } else if (strcmp(mode, "spawn") == 0 && rank == 0) {
    spawn();
  } else if (rank == size - 1 && strcmp(mode, "abort") == 0) {
    MPI_Abort(MPI_COMM_WORLD, 3);
  } else if (rank == size - 1 && strcmp(mode, "exit") == 0) {
    exit(5);
  } else if (rank == size - 1 && strcmp(mode, "leave") == 0) {
    _exit(0);
  } else if (rank == size - 1 && strcmp(mode, "die") == 0) {
    abort();
  }
  while (strcmp(mode, "stay") == 0) pause();
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return 0;
}
