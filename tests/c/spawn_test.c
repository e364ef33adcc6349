/* Ranks from within a program: they meet, and a failure names the first of them. */
#include "expect.h"

#include <signal.h>
#include <unistd.h>

static int sums(int rank, void* argument) {
  (void)argument;
  dl_world* world = NULL;
  dl_comm* comm = NULL;
  EXPECT_OK(dl_world_init("dlaunch://", NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT(dl_comm_rank(comm) == rank && dl_comm_size(comm) == 3);
  int sum = rank + 1;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&sum, 1), dl_op(DL_SUM), DL_HERE));
  EXPECT(sum == 6);
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}

/* Rank 1 is lost in the way the argument says; the others hear of it where they wait. */
static int loses_one(int rank, void* argument) {
  const char* how = argument;
  dl_world* world = NULL;
  dl_comm* comm = NULL;
  EXPECT_OK(dl_world_init("dlaunch://", NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  if (rank == 1) {
    if (strcmp(how, "killed") == 0) raise(SIGKILL);
    if (strcmp(how, "abandons") != 0) return 3;
    dl_comm_free(comm);
    dl_world_abandon(world);
    pause();
  }
  EXPECT_FAILS(DL_PEER_LOST, "rank 1", dl_barrier(comm, DL_HERE));
  EXPECT(strstr(dl_last_message(comm), "spawn_test.c:") != NULL);
  EXPECT_FAILS(DL_PEER_LOST, "rank 1", dl_barrier(comm, DL_HERE)); /* It sticks. */
  dl_comm_free(comm);
  dl_world_abandon(world);
  return strcmp(how, "abandons") == 0 ? 4 : 75;
}

/* Rank 1 takes itself for the root; each returns. */
static int names_a_root(int rank, void* argument) {
  (void)argument;
  dl_world* world = NULL;
  dl_comm* comm = NULL;
  EXPECT_OK(dl_world_init("dlaunch://", NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  int one = 1;
  EXPECT_OK(dl_broadcast(comm, DL_VIEW(&one, 1), rank == 1 ? 1 : 0, DL_HERE));
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}

static int returns(int rank, void* argument) { return rank == 2 ? *(const int*)argument : 0; }

int main(void) {
  EXPECT_OK(dl_spawn(3, sums, NULL, NULL, NULL));

  char returning[] = "returns", killed[] = "killed", abandons[] = "abandons";
  const dl_spawn_options patient = {.struct_size = sizeof patient, .failure_grace_ms = 30000};
  dl_spawn_failure failure;
  EXPECT_FAILS(DL_PEER_LOST, "", dl_spawn(3, loses_one, returning, &patient, &failure));
  EXPECT(failure.rank == 1 && failure.exit_code == 3 && failure.signal == 0);
  EXPECT_FAILS(DL_PEER_LOST, "", dl_spawn(3, loses_one, killed, &patient, &failure));
  EXPECT(failure.rank == 1 && failure.exit_code == -1 && failure.signal == SIGKILL);
  EXPECT_FAILS(DL_PEER_LOST, "", dl_spawn(3, loses_one, abandons, NULL, &failure));
  /* It lives: those who lost it failed, and it is to blame. */
  EXPECT(failure.rank == 1 && failure.exit_code == 0);

  EXPECT_FAILS(DL_MISMATCH, "the ranks do not agree: rank 1 made broadcast #1",
               dl_spawn(3, names_a_root, NULL, NULL, &failure));
  EXPECT(failure.rank == 1 && failure.exit_code == 0 && failure.signal == 0);

  int code = 0;
  EXPECT_OK(dl_spawn(3, returns, &code, NULL, &failure));
  EXPECT(failure.rank == -1);
  code = 9;
  EXPECT_FAILS(DL_PEER_LOST, "9", dl_spawn(3, returns, &code, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "", dl_spawn(0, returns, &code, NULL, &failure));
  EXPECT_FAILS(DL_MISUSE, "", dl_spawn(5000, returns, &code, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_spawn: 'program' is a null pointer",
               dl_spawn(1, NULL, NULL, NULL, NULL));
  const dl_spawn_options wrong = {.struct_size = 1};
  EXPECT_FAILS(DL_MISUSE, "struct_size 1", dl_spawn(1, returns, &code, &wrong, NULL));
  return 0;
}
