/* Point to point: around a ring, with tags, from anyone, in batches. */
#include "expect.h"

static dl_comm* comm;
static int rank, size, next, before;

static void goes_around(void) {
  double out[3] = {rank, rank + 0.5, -rank}, in[3] = {0};
  dl_received what;
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 3), next, DL_HERE));
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 3), before, &what, DL_HERE));
  EXPECT(in[0] == before && in[1] == before + 0.5 && in[2] == -before);
  EXPECT(what.source == before && what.tag == 0 && what.dtype == DL_F64 && what.count == 3);
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 0), next, NULL));
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 0), before, NULL, NULL));
}

static void exchanges(void) {
  enum { LARGE = 1 << 18 };
  int64_t *out = calloc(LARGE, sizeof *out), *in = calloc(LARGE, sizeof *in);
  for (int i = 0; i < LARGE; ++i) out[i] = (int64_t)rank * LARGE + i;
  dl_received what;
  EXPECT_OK(dl_sendrecv(comm, DL_CONST_VIEW(out, LARGE), next, DL_VIEW(in, LARGE), before, &what,
                        &DL_OPTIONS(.tag = 5)));
  EXPECT(what.source == before && what.tag == 5 && what.count == LARGE);
  for (int i = 0; i < LARGE; ++i) EXPECT(in[i] == (int64_t)before * LARGE + i);
  EXPECT_OK(dl_sendrecv(comm, DL_CONST_VIEW(out, 1), before, DL_VIEW(in, 1), DL_ANY_SOURCE, NULL,
                        DL_HERE));
  EXPECT(in[0] == (int64_t)next * LARGE);
  free(out);
  free(in);
}

static void tells_tags_apart(void) {
  const int one = 100 + rank, two = 200 + rank;
  int in = 0;
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(&one, 1), next, &DL_OPTIONS(.tag = 1)));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(&two, 1), next, &DL_OPTIONS(.tag = DL_TAG_MAX)));
  EXPECT_OK(dl_recv(comm, DL_VIEW(&in, 1), before, NULL, &DL_OPTIONS(.tag = DL_TAG_MAX)));
  EXPECT(in == 200 + before);
  dl_received what;
  EXPECT_OK(dl_recv(comm, DL_VIEW(&in, 1), DL_ANY_SOURCE, &what, &DL_OPTIONS(.tag = DL_ANY_TAG)));
  EXPECT(in == 100 + before && what.source == before && what.tag == 1);
}

static void probes(void) {
  int found = -1;
  dl_received what = {0};
  EXPECT_OK(dl_try_probe(comm, before, &found, &what, &DL_OPTIONS(.tag = 9)));
  EXPECT(found == 0);
  EXPECT_OK(dl_barrier(comm, NULL)); /* Nobody sends before all have looked. */
  float out[5] = {0}, in[5];
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 5), next, &DL_OPTIONS(.tag = 9)));
  EXPECT_OK(dl_probe(comm, DL_ANY_SOURCE, &what, &DL_OPTIONS(.tag = 9)));
  EXPECT(what.source == before && what.count == 5 && what.dtype == DL_F32 && what.tag == 9);
  EXPECT_OK(dl_try_probe(comm, before, &found, NULL, &DL_OPTIONS(.tag = 9)));
  EXPECT(found == 1);
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 5), before, NULL, &DL_OPTIONS(.tag = 9)));
}

static void starts(void) {
  enum { LARGE = 1 << 17 };
  int64_t *out = calloc(LARGE, sizeof *out), *in = calloc(LARGE, sizeof *in);
  for (int i = 0; i < LARGE; ++i) out[i] = (int64_t)rank * LARGE + i;
  dl_work *sending = NULL, *receiving = NULL;
  EXPECT_OK(dl_isend(comm, DL_CONST_VIEW(out, LARGE), next, &sending, DL_HERE));
  EXPECT_OK(dl_irecv(comm, DL_VIEW(in, LARGE), before, &receiving, DL_HERE));
  int done = 0;
  while (!done) EXPECT_OK(dl_work_test(receiving, &done));
  EXPECT(dl_work_done(receiving));
  EXPECT_OK(dl_work_wait(receiving));
  EXPECT_OK(dl_work_wait(sending));
  for (int i = 0; i < LARGE; ++i) EXPECT(in[i] == (int64_t)before * LARGE + i);
  dl_work_free(sending);
  dl_work_free(receiving);

  /* A column each way, all at once. */
  for (int i = 0; i < 8; ++i) out[i] = 10 * rank + i;
  dl_const_view evens = DL_CONST_VIEW(out, 4);
  evens.stride = 2;
  const dl_transfer transfers[4] = {dl_make_recv(DL_VIEW(in, 4), before, 3),
                                    dl_make_send(evens, next, 3),
                                    dl_make_recv(DL_VIEW(in + 4, 4), next, 4),
                                    dl_make_send(DL_CONST_VIEW(out + 4, 4), before, 4)};
  EXPECT_OK(dl_batch(comm, transfers, 4, DL_HERE));
  for (int i = 0; i < 4; ++i)
    EXPECT(in[i] == 10 * before + 2 * i && in[4 + i] == 10 * next + 4 + i);
  memset(in, 0, 8 * sizeof *in);
  dl_work* works[4];
  EXPECT_OK(dl_start_batch(comm, transfers, 4, works, DL_HERE));
  for (int i = 0; i < 4; ++i) {
    EXPECT_OK(dl_work_wait(works[i]));
    dl_work_free(works[i]);
  }
  for (int i = 0; i < 4; ++i)
    EXPECT(in[i] == 10 * before + 2 * i && in[4 + i] == 10 * next + 4 + i);
  EXPECT_OK(dl_batch(comm, NULL, 0, DL_HERE));
  free(out);
  free(in);
}

/* A work may outlive its communicator, which ends it. */
static void ends_with_its_communicator(void) {
  dl_comm* made = NULL;
  dl_work* work = NULL;
  int x = 0;
  EXPECT_OK(dl_comm_duplicate(comm, &made, NULL));
  EXPECT_OK(dl_irecv(made, DL_VIEW(&x, 1), before, &work, DL_HERE));
  EXPECT(dl_work_done(work) == 0);
  dl_comm_free(made);
  EXPECT(dl_work_done(work) == 1);
  EXPECT_FAILS(DL_ABORTED, "destroyed", dl_work_wait(work));
  EXPECT_FAILS(DL_ABORTED, "destroyed", dl_work_wait(work));
  EXPECT(strstr(dl_last_message(work), "destroyed") != NULL);
  dl_work_free(work);
}

static void refuses_nonsense(void) {
  int x = 0;
  dl_work* work = NULL;
  dl_received what;
  EXPECT_FAILS(DL_MISUSE, "there is no rank 77", dl_send(comm, DL_CONST_VIEW(&x, 1), 77, DL_HERE));
  EXPECT(strstr(dl_last_message(comm), "send to rank 77") != NULL);
  EXPECT_FAILS(DL_MISUSE, "the tag -2",
               dl_recv(comm, DL_VIEW(&x, 1), 0, NULL, &DL_OPTIONS(.tag = -2)));
  EXPECT_FAILS(DL_MISUSE, "dl_isend: 'work' is a null pointer",
               dl_isend(comm, DL_CONST_VIEW(&x, 1), 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_irecv: the dl_comm", dl_irecv(NULL, DL_VIEW(&x, 1), 0, &work, NULL));
  EXPECT_FAILS(DL_MISUSE, "'received' is a null pointer", dl_probe(comm, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'found' is a null pointer", dl_try_probe(comm, 0, NULL, &what, NULL));
  EXPECT_FAILS(DL_MISUSE, "'transfers' is a null pointer for 2 transfers",
               dl_batch(comm, NULL, 2, NULL));
  dl_transfer wrong = dl_make_send(DL_CONST_VIEW(&x, 1), rank, 0);
  EXPECT_FAILS(DL_MISUSE, "'works' is a null pointer", dl_start_batch(comm, &wrong, 1, NULL, NULL));
  wrong.reserved = 1;
  EXPECT_FAILS(DL_MISUSE, "'reserved' is 0", dl_batch(comm, &wrong, 1, NULL));
  EXPECT_FAILS(
      DL_TIMEOUT, "messages_test.c:",
      dl_recv(comm, DL_VIEW(&x, 1), before, NULL, &DL_OPTIONS(.tag = 12345, .timeout_ms = 20)));
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  rank = dl_comm_rank(comm);
  size = dl_comm_size(comm);
  next = (rank + 1) % size;
  before = (rank + size - 1) % size;
  goes_around();
  exchanges();
  tells_tags_apart();
  probes();
  starts();
  ends_with_its_communicator();
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  refuses_nonsense(); /* Its last error ends the communicator. */
  dl_store* store = NULL;
  EXPECT_OK(dl_world_store(world, &store));
  EXPECT_OK(dl_store_barrier(store, "end", rank, size, 60000));
  dl_store_free(store);
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
