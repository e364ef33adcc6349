/* Groups, time, and ways to end. */
#include "expect.h"

#include <dlfcn.h>
#include <poll.h>
#include <stdint.h>
#include <unistd.h>

static dl_world* world;
static int rank, size;

static int sum_of(dl_comm* comm) {
  int value = dl_world_rank(world) + 1;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&value, 1), dl_op(DL_SUM), DL_HERE));
  return value;
}

static void describes_itself(dl_comm* comm) {
  EXPECT(dl_comm_rank(comm) == rank && dl_comm_size(comm) == size);
  EXPECT(strcmp(dl_comm_name(comm), "tested") == 0);
  EXPECT(dl_comm_timeout_ms(comm) == 300000);
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  EXPECT(dl_comm_timeout_ms(comm) == 60000);
  EXPECT_FAILS(DL_MISUSE, "more than zero", dl_comm_set_timeout(comm, 0));
  EXPECT(strstr(dl_last_message(comm), "more than zero") != NULL);
  EXPECT_OK(dl_comm_set_stuck_after(comm, 1000));
  EXPECT_OK(dl_comm_set_stuck_after(comm, 0));
  EXPECT_FAILS(DL_MISUSE, "not negative", dl_comm_set_stuck_after(comm, -1));
}

static void sums_in(int* values, size_t count, dl_comm* comm) {
  for (size_t i = 0; i < count; ++i) values[i] = rank + (int)i;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(values, count), dl_op(DL_SUM), DL_HERE));
  for (size_t i = 0; i < count; ++i) {
    EXPECT(values[i] == size * (size - 1) / 2 + size * (int)i);
  }
}

/* Sleeps in poll alone, then looks. */
static void polls(dl_comm* comm) {
  int descriptor = -1, done = 0;
  EXPECT_OK(dl_comm_descriptor(comm, &descriptor));
  EXPECT_FAILS(DL_MISUSE, "'descriptor' is a null pointer", dl_comm_descriptor(comm, NULL));
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  for (int round = 0; round < 10; ++round) {
    int in = -1, sum = 1;
    dl_work* works[3] = {NULL};
    EXPECT_OK(dl_irecv(comm, DL_VIEW(&in, 1), before, works, DL_HERE));
    EXPECT_OK(dl_start_all_reduce(comm, DL_VIEW(&sum, 1), dl_op(DL_SUM), works + 1, DL_HERE));
    EXPECT_OK(dl_issend(comm, DL_CONST_VIEW(&rank, 1), next, works + 2, DL_HERE));
    for (done = 0; !done;) {
      struct pollfd readable = {.fd = descriptor, .events = POLLIN};
      EXPECT(poll(&readable, 1, 60000) == 1);
      uint64_t count = 0;
      while (read(descriptor, &count, sizeof count) == (ssize_t)sizeof count) {
      }
      EXPECT_OK(dl_work_test_all(works, 3, &done));
    }
    EXPECT(in == before && sum == size);
    for (int i = 0; i < 3; ++i) dl_work_free(works[i]);
  }
}

/* Memory is there for as long as it is not freed, whoever it came from. */
static void allocates(dl_comm* comm) {
  enum { COUNT = 100000 };
  dl_comm* made = NULL;
  dl_buffer* buffer = NULL;
  EXPECT_OK(dl_comm_duplicate(comm, &made, DL_HERE));
  EXPECT_OK(dl_comm_allocate(made, COUNT * sizeof(int), &buffer));
  EXPECT(dl_buffer_bytes(buffer) == COUNT * sizeof(int));
  EXPECT(dl_buffer_is_shared(buffer) == (size > 1));
  EXPECT((uintptr_t)dl_buffer_data(buffer) % 4096 == 0);
  sums_in(dl_buffer_data(buffer), COUNT, made);
  dl_comm_free(made);
  sums_in(dl_buffer_data(buffer), COUNT, comm);
  dl_buffer_free(buffer);

  EXPECT_OK(dl_comm_allocate(comm, 0, &buffer));
  EXPECT(dl_buffer_bytes(buffer) == 0);
  dl_buffer_free(buffer);
}

/* By the driver, as a program does it. */
static void device_copy(void* to, const void* from, size_t bytes) {
  int (*copy)(unsigned long long, unsigned long long, size_t) = NULL;
  void* const driver = dlopen(getenv("DLAUNCH_CUDA_LIBRARY"), RTLD_NOW);
  EXPECT(driver != NULL);
  *(void**)&copy = dlsym(driver, "cuMemcpy");
  EXPECT(copy != NULL && copy((uintptr_t)to, (uintptr_t)from, bytes) == 0);
  dlclose(driver);
}

/* On the test doubles of CUDA and NCCL, whose device memory is the host's; or where neither is. */
static void allocates_on_device(dl_comm* comm) {
  dl_buffer* buffer = NULL;
  const dl_status status = dl_comm_allocate_device(comm, 4 * sizeof(int), 0, &buffer);
  if (getenv("DLAUNCH_CUDA_LIBRARY") == NULL) {
    if (status == DL_OK) dl_buffer_free(buffer); /* There is a GPU. */
    EXPECT(status == DL_OK || status == DL_UNSUPPORTED);
    return;
  }
  EXPECT_OK(status);
  EXPECT(dl_buffer_bytes(buffer) == 4 * sizeof(int));
  EXPECT(dl_buffer_is_shared(buffer) == 0);
  EXPECT_OK(dl_comm_prepare_device(comm, 0, DL_HERE));
  int* const memory = dl_buffer_data(buffer); /* The host may not touch it. */
  int values[4] = {0, 1, 2, 3};
  device_copy(memory, values, sizeof values);
  dl_view view = DL_VIEW(memory, 4);
  view.place = DL_CUDA(0);
  EXPECT_OK(dl_all_reduce(comm, view, dl_op(DL_SUM), DL_HERE));
  device_copy(values, memory, sizeof values);
  EXPECT(values[3] == 3 * size);
  dl_buffer_free(buffer);
  EXPECT(dl_comm_allocate_device(comm, 4, 99, &buffer) == DL_MISUSE);
}

static void splits(dl_comm* comm) {
  dl_comm* made = NULL;
  EXPECT_OK(dl_comm_split(comm, rank % 2, -rank, &made, DL_HERE)); /* Backwards. */
  EXPECT(dl_comm_size(made) == (size + 1 - rank % 2) / 2);
  int* ranks = calloc((size_t)size, sizeof *ranks);
  EXPECT_OK(dl_comm_world_ranks(made, ranks, (size_t)size));
  EXPECT(ranks[dl_comm_rank(made)] == rank && ranks[dl_comm_size(made) - 1] == rank % 2);
  int expected = 0;
  for (int other = rank % 2; other < size; other += 2) expected += other + 1;
  EXPECT(sum_of(made) == expected);
  int translated = -2;
  EXPECT_OK(dl_comm_translate(made, dl_comm_rank(made), comm, &translated));
  EXPECT(translated == rank);
  if (size > 1) {
    EXPECT_OK(dl_comm_translate(comm, (rank + 1) % 2, made, &translated));
    EXPECT(translated == -1);
    EXPECT_FAILS(DL_MISUSE, "'ranks' has room for 1", dl_comm_world_ranks(comm, ranks, 1));
  }
  EXPECT_FAILS(DL_MISUSE, "there is no rank 99", dl_comm_translate(comm, 99, made, &translated));
  free(ranks);
  dl_comm_free(made);

  EXPECT_OK(dl_comm_split(comm, rank == 0 ? 7 : DL_NO_COLOR, 0, &made, DL_HERE));
  EXPECT((made != NULL) == (rank == 0));
  dl_comm_free(made);
}

static void groups(dl_comm* comm) {
  dl_comm* made = NULL;
  const int ranks[2] = {size - 1, 0};
  const size_t count = size > 1 ? 2 : 1;
  EXPECT_OK(dl_comm_group(comm, ranks, count, &made, DL_HERE));
  const int is_member = rank == 0 || rank == size - 1;
  EXPECT((made != NULL) == is_member);
  if (is_member) EXPECT(sum_of(made) == (size > 1 ? size + 1 : 1));
  dl_comm_free(made);
  made = NULL;
  if (is_member) {
    EXPECT_OK(dl_comm_group_of_members(comm, ranks, count, &made, DL_HERE));
    EXPECT(sum_of(made) == (size > 1 ? size + 1 : 1));
    dl_comm_free(made);
    made = NULL;
  }
  EXPECT_FAILS(DL_MISUSE, "'ranks' is a null pointer for 2 ranks",
               dl_comm_group(comm, NULL, 2, &made, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "at least one", dl_comm_group(comm, NULL, 0, &made, DL_HERE));
  const int twice[2] = {0, 0};
  EXPECT_FAILS(DL_MISUSE, "listed twice", dl_comm_group(comm, twice, 2, &made, DL_HERE));
  EXPECT(made == NULL);
  EXPECT_OK(dl_comm_duplicate(comm, &made, DL_HERE));
  EXPECT(sum_of(made) == size * (size + 1) / 2);
  dl_comm_free(made);
}

/* Each on a communicator of its own, which the error ends. */
static void fails(dl_comm* comm) {
  dl_comm* made = NULL;
  int x[2] = {0, 0};
  if (size > 1) {
    EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
    EXPECT_FAILS(DL_MISMATCH, "communicator_test.c:",
                 dl_all_reduce(made, DL_VIEW(x, rank == 0 ? 1 : 2), dl_op(DL_SUM), DL_HERE));
    EXPECT(strstr(dl_last_message(made), "all_reduce") != NULL);
    EXPECT(strcmp(dl_last_message(comm), dl_last_message(made)) != 0);
    EXPECT_FAILS(DL_MISMATCH, "all_reduce", dl_barrier(made, DL_HERE));
    dl_comm_free(made);

    EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
    if (rank != 1) {
      EXPECT_FAILS(DL_TIMEOUT, "", dl_barrier(made, &DL_OPTIONS(.timeout_ms = 50)));
    }
    EXPECT_OK(dl_barrier(comm, NULL)); /* Rank 1 stays until the others have given up. */
    dl_comm_free(made);
  }
  EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
  EXPECT_OK(dl_comm_abort(made));
  EXPECT_FAILS(DL_ABORTED, "", dl_barrier(made, NULL));
  EXPECT_OK(dl_barrier(comm, NULL));
  dl_comm_free(made);
  /* Told while rank 0 is in no call of it. */
  EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
  if (rank == 0) {
    EXPECT_OK(dl_comm_abort(made));
  } else {
    EXPECT_FAILS(DL_ABORTED, "rank 0 aborted the communicator", dl_barrier(made, DL_HERE));
  }
  EXPECT_OK(dl_barrier(comm, NULL));
  dl_comm_free(made);

  uint32_t agreed = 0;
  dl_comm* rest = NULL;
  EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
  if (rank == 0) EXPECT_OK(dl_comm_revoke(made));
  EXPECT_FAILS(DL_REVOKED, "was revoked by rank 0", dl_barrier(made, DL_HERE));
  EXPECT_OK(dl_comm_agree(made, rank == 0 ? 6 : 3, &agreed, DL_HERE));
  EXPECT(agreed == (dl_comm_size(comm) == 1 ? 6 : 2));
  EXPECT_OK(dl_comm_shrink(made, &rest, DL_HERE));
  EXPECT(dl_comm_size(rest) == dl_comm_size(comm) && dl_comm_rank(rest) == rank);
  EXPECT_OK(dl_barrier(rest, DL_HERE));
  dl_comm_free(rest);
  dl_comm_free(made);
}

static void takes_null(dl_comm* comm) {
  dl_comm* made = NULL;
  int translated = 0;
  dl_comm_free(NULL);
  EXPECT(dl_comm_rank(NULL) == -1 && dl_comm_size(NULL) == 0 && dl_comm_timeout_ms(NULL) == 0);
  EXPECT(strcmp(dl_comm_name(NULL), "") == 0);
  EXPECT_FAILS(DL_MISUSE, "dl_comm_create: the dl_world", dl_comm_create(NULL, NULL, &made));
  EXPECT_FAILS(DL_MISUSE, "'comm' is a null pointer", dl_comm_create(world, NULL, NULL));
  dl_buffer_free(NULL);
  EXPECT(dl_buffer_data(NULL) == NULL && dl_buffer_bytes(NULL) == 0);
  EXPECT(dl_buffer_is_shared(NULL) == 0);
  EXPECT_FAILS(DL_MISUSE, "'buffer' is a null pointer", dl_comm_allocate(comm, 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_allocate: the dl_comm", dl_comm_allocate(NULL, 1, NULL));
  dl_buffer* buffer = NULL;
  EXPECT_FAILS(DL_INTERNAL, "dl_comm_allocate: there is no memory for 18446744073709551615 bytes",
               dl_comm_allocate(comm, SIZE_MAX, &buffer));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_abort: ", dl_comm_abort(NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_revoke: the dl_comm", dl_comm_revoke(NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_agree: the dl_comm", dl_comm_agree(NULL, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_shrink: the dl_comm", dl_comm_shrink(NULL, &made, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_split: the dl_comm", dl_comm_split(NULL, 0, 0, &made, NULL));
  EXPECT_FAILS(DL_MISUSE, "'made' is a null pointer", dl_comm_split(comm, 0, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'made' is a null pointer", dl_comm_duplicate(comm, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'ranks' is a null pointer", dl_comm_world_ranks(comm, NULL, 9));
  EXPECT_FAILS(DL_MISUSE, "'other' is a null pointer",
               dl_comm_translate(comm, 0, NULL, &translated));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_set_timeout: the dl_comm", dl_comm_set_timeout(NULL, 1));
  EXPECT_FAILS(DL_MISUSE, "dl_comm_set_stuck_after: the dl_comm", dl_comm_set_stuck_after(NULL, 1));
}

int main(void) {
  EXPECT_OK(dl_world_from_env(NULL, &world));
  rank = dl_world_rank(world);
  size = dl_world_size(world);
  dl_comm* comm = NULL;
  EXPECT_OK(dl_comm_create(world, "tested", &comm));
  describes_itself(comm);
  polls(comm);
  allocates(comm);
  allocates_on_device(comm);
  splits(comm);
  groups(comm);
  takes_null(comm);
  fails(comm);
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
