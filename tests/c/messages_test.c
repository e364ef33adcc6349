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

static void starts_probes(void) {
  float out[5] = {0}, in[5];
  int cancelled = 0, found = -1;
  size_t index = 9;
  dl_received what = {0};
  dl_work* works[2] = {NULL, NULL};
  EXPECT_OK(dl_start_probe(comm, before, &works[0], &DL_OPTIONS(.tag = 8)));
  EXPECT_OK(dl_start_probe(comm, DL_ANY_SOURCE, &works[1], &DL_OPTIONS(.tag = 9)));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 5), next, &DL_OPTIONS(.tag = 9)));
  EXPECT_OK(dl_work_wait_any(works, 2, 60000, &index));
  EXPECT(index == 1);
  EXPECT_OK(dl_work_received(works[1], &found, &what));
  EXPECT(found == 1 && what.source == before && what.count == 5 && what.tag == 9);
  EXPECT_OK(dl_work_received(works[0], &found, &what));
  EXPECT(found == 0);
  EXPECT_OK(dl_work_cancel(works[0], &cancelled));
  EXPECT(cancelled == 1);
  for (int i = 0; i < 2; ++i) dl_work_free(works[i]);
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 5), before, NULL, &DL_OPTIONS(.tag = 9)));
  EXPECT_FAILS(DL_MISUSE, "'work' is a null pointer", dl_start_probe(comm, before, NULL, DL_HERE));
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

/* Messages that have left share a handle, which each of them gives back. */
static void frees_each_of_many(void) {
  enum { MANY = 5 };
  dl_work* works[MANY];
  int in = 0, done = 0, cancelled = 0;
  size_t index = MANY;
  for (int i = 0; i < MANY; ++i) {
    EXPECT_OK(dl_isend(comm, DL_CONST_VIEW(&rank, 1), next, &works[i], DL_HERE));
  }
  EXPECT_OK(dl_work_wait_any(works, MANY, 0, &index));
  EXPECT(index == 0);
  for (int i = 0; i < MANY; ++i) {
    EXPECT_OK(dl_work_wait(works[i]));
    EXPECT_OK(dl_work_test(works[i], &done));
    EXPECT(done == 1 && dl_work_done(works[i]) == 1);
    EXPECT_FAILS(DL_UNSUPPORTED, "cancel is for", dl_work_cancel(works[i], &cancelled));
    EXPECT(strstr(dl_last_message(works[i]), "cancel is for") != NULL);
    dl_work_free(works[i]);
  }
  for (int i = 0; i < MANY; ++i) {
    EXPECT_OK(dl_recv(comm, DL_VIEW(&in, 1), before, NULL, DL_HERE));
    EXPECT(in == before);
  }
}

static void receives_what_is_shorter(void) {
  const int32_t out[3] = {rank, rank + 1, rank + 2};
  int32_t in[8] = {0};
  dl_received what;
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 3), next, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "the buffer has room for 2",
               dl_recv_up_to(comm, DL_VIEW(in, 2), before, NULL, DL_HERE));
  EXPECT_OK(dl_recv_up_to(comm, DL_VIEW(in, 8), before, &what, DL_HERE));
  EXPECT(what.source == before && what.dtype == DL_I32 && what.count == 3);
  EXPECT(in[0] == before && in[2] == before + 2 && in[3] == 0);

  EXPECT_OK(dl_sendrecv_up_to(comm, DL_CONST_VIEW(out, 2), next, DL_VIEW(in + 4, 4), before, &what,
                              DL_HERE));
  EXPECT(what.source == before && what.count == 2 && in[5] == before + 1 && in[6] == 0);
  dl_transfer both[2] = {dl_make_recv_up_to(DL_VIEW(in + 3, 5), before, 4),
                         dl_make_send(DL_CONST_VIEW(out, 3), next, 4)};
  EXPECT_OK(dl_batch(comm, both, 2, DL_HERE));
  EXPECT(in[3] == before && in[5] == before + 2 && in[6] == 0);
  both[1].up_to = 1;
  EXPECT_FAILS(DL_MISUSE, "a dl_transfer's 'up_to' is 0, or 1 for one that receives",
               dl_batch(comm, both, 2, NULL));

  dl_work* work = NULL;
  int found = 1;
  EXPECT_OK(dl_irecv_up_to(comm, DL_VIEW(in, 8), DL_ANY_SOURCE, &work, &DL_OPTIONS(.tag = 5)));
  EXPECT_OK(dl_work_received(work, &found, &what));
  EXPECT(found == 0);
  EXPECT_OK(dl_barrier(comm, DL_HERE)); /* Nobody sends before all have looked. */
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 1), next, &DL_OPTIONS(.tag = 5)));
  EXPECT_OK(dl_work_wait(work));
  EXPECT_OK(dl_work_received(work, &found, &what));
  EXPECT(found == 1 && what.source == before && what.tag == 5 && what.count == 1);
  EXPECT_OK(dl_work_received(work, &found, NULL));
  EXPECT_FAILS(DL_MISUSE, "'found' is a null pointer", dl_work_received(work, NULL, &what));
  dl_work_free(work);
}

static void waits_for_some(void) {
  int32_t out = rank, in[3] = {0};
  dl_work* works[4] = {NULL};
  size_t indices[4] = {9, 9, 9, 9}, complete = 9, index = 9;
  int done = 1, cancelled = 9;
  for (int i = 0; i < 3; ++i)
    EXPECT_OK(dl_irecv(comm, DL_VIEW(in + i, 1), before, works + i, &DL_OPTIONS(.tag = i)));
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  EXPECT_OK(dl_work_wait_some(works, 4, 0, indices, &complete));
  EXPECT(complete == 0 && indices[0] == 9);
  EXPECT_OK(dl_work_test_any(works, 4, &index));
  EXPECT(index == 4);
  EXPECT_OK(dl_work_test_all(works, 4, &done));
  EXPECT(done == 0);
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(&out, 1), next, &DL_OPTIONS(.tag = 1)));
  EXPECT_OK(dl_work_wait_some(works, 4, 60000, indices, &complete));
  EXPECT(complete == 1 && indices[0] == 1 && in[1] == before);
  EXPECT_OK(dl_work_test_any(works, 4, &index));
  EXPECT(index == 1);
  EXPECT_OK(dl_work_cancel(works[0], &cancelled));
  EXPECT(cancelled == 1);
  EXPECT_OK(dl_work_cancel(works[1], &cancelled));
  EXPECT(cancelled == 0);
  EXPECT_OK(dl_work_cancel(works[2], &cancelled));
  EXPECT(cancelled == 1);
  EXPECT_FAILS(DL_ABORTED, "was cancelled [messages_test.c:", dl_work_wait(works[2]));
  EXPECT_OK(dl_work_test_all(works, 4, &done));
  EXPECT(done == 1);
  for (int i = 0; i < 3; ++i) dl_work_free(works[i]);
  EXPECT_OK(dl_barrier(comm, DL_HERE)); /* Nobody sends before all have cancelled. */
  EXPECT_OK(dl_isend(comm, DL_CONST_VIEW(&out, 1), next, works, NULL));
  EXPECT_FAILS(DL_UNSUPPORTED, "cancel is for started receives",
               dl_work_cancel(works[0], &cancelled));
  EXPECT_FAILS(DL_MISUSE, "'cancelled' is a null pointer", dl_work_cancel(works[0], NULL));
  EXPECT_FAILS(DL_MISUSE, "'indices' is a null pointer",
               dl_work_wait_some(works, 1, 0, NULL, &complete));
  EXPECT_FAILS(DL_MISUSE, "'complete' is a null pointer",
               dl_work_wait_some(works, 1, 0, indices, NULL));
  EXPECT_FAILS(DL_MISUSE, "'index' is a null pointer", dl_work_test_any(works, 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "'done' is a null pointer", dl_work_test_all(works, 1, NULL));
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 1), before, NULL, NULL));
  dl_work_free(works[0]);
}

static void waits_for_a_while(void) {
  const int32_t out = rank;
  int32_t in[2] = {-1, -1};
  dl_work* works[2] = {NULL};
  int done = 9;
  /* The message's own timeout counts from dl_work_wait, which nobody calls here. */
  EXPECT_OK(dl_irecv(comm, DL_VIEW(in, 1), before, works, &DL_OPTIONS(.tag = 6, .timeout_ms = 1)));
  EXPECT_OK(dl_start_probe(comm, before, works + 1, &DL_OPTIONS(.tag = 7)));
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(dl_work_wait_for(works[i], 20, &done));
    EXPECT(done == 0 && dl_work_done(works[i]) == 0);
  }
  EXPECT_OK(dl_work_wait_for(works[0], -1, &done));
  EXPECT(done == 0 && in[0] == -1);
  /* Nobody sends before all have waited; and the communicator is whole. */
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  for (int tag = 6; tag <= 7; ++tag)
    EXPECT_OK(dl_send(comm, DL_CONST_VIEW(&out, 1), next, &DL_OPTIONS(.tag = tag)));
  EXPECT_OK(dl_work_wait_for(works[0], 60000, &done));
  EXPECT(done == 1 && dl_work_done(works[0]) == 1 && in[0] == before);
  EXPECT_OK(dl_work_wait_for(works[1], INT64_MAX, &done));
  EXPECT(done == 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(dl_work_wait(works[i]));
    EXPECT_FAILS(DL_MISUSE, "'done' is a null pointer", dl_work_wait_for(works[i], 1, NULL));
    dl_work_free(works[i]);
  }
  EXPECT_OK(dl_recv(comm, DL_VIEW(in + 1, 1), before, NULL, &DL_OPTIONS(.tag = 7)));
  EXPECT(in[1] == before);
}

static void sends_until_received(void) {
  enum { LARGE = 1 << 17 };
  int64_t *out = calloc(LARGE, sizeof *out), *in = calloc(LARGE, sizeof *in);
  for (int i = 0; i < LARGE; ++i) out[i] = (int64_t)rank * LARGE + i;
  const size_t counts[3] = {0, 3, LARGE};
  for (int c = 0; c < 3; ++c) {
    dl_work *receiving = NULL, *sending = NULL;
    int done = 1;
    EXPECT_OK(dl_irecv(comm, DL_VIEW(in, counts[c]), before, &receiving, DL_HERE));
    EXPECT_OK(dl_ssend(comm, DL_CONST_VIEW(out, counts[c]), next, DL_HERE));
    EXPECT_OK(dl_work_wait(receiving));
    dl_work_free(receiving);
    for (size_t i = 0; i < counts[c]; ++i) EXPECT(in[i] == (int64_t)before * LARGE + (int64_t)i);
    EXPECT_OK(dl_issend(comm, DL_CONST_VIEW(out, counts[c]), next, &sending, DL_HERE));
    EXPECT_OK(dl_barrier(comm, DL_HERE));
    EXPECT_OK(dl_work_test(sending, &done));
    EXPECT(done == 0);
    EXPECT_OK(dl_barrier(comm, DL_HERE));
    EXPECT_OK(dl_recv(comm, DL_VIEW(in, counts[c]), before, NULL, DL_HERE));
    EXPECT_OK(dl_work_wait(sending));
    dl_work_free(sending);
  }
  free(out);
  free(in);
}

static void matches(void) {
  const double out[2] = {rank, rank + 0.5};
  double in[4] = {0};
  dl_received what;
  dl_message *first = NULL, *second = NULL;
  int found = 9;
  EXPECT_OK(dl_try_match(comm, before, &found, &first, DL_HERE));
  EXPECT(found == 0 && first == NULL);
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 2), next, DL_HERE));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(out, 1), next, DL_HERE));
  EXPECT_OK(dl_match(comm, DL_ANY_SOURCE, &first, &DL_OPTIONS(.tag = DL_ANY_TAG)));
  EXPECT_OK(dl_message_what(first, &what));
  EXPECT(what.source == before && what.tag == 0 && what.dtype == DL_F64 && what.count == 2);
  while (second == NULL) EXPECT_OK(dl_try_match(comm, before, &found, &second, DL_HERE));
  EXPECT(found == 1);
  EXPECT_OK(dl_message_what(second, &what));
  EXPECT(what.count == 1);
  dl_message_free(second);
  EXPECT_OK(dl_recv(comm, DL_VIEW(in, 1), before, NULL, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "the buffer has room for 1",
               dl_recv_matched(comm, first, DL_VIEW(in, 1), NULL, DL_HERE));
  EXPECT_OK(dl_recv_matched(comm, first, DL_VIEW(in, 4), &what, DL_HERE));
  EXPECT(what.source == before && what.count == 2 && in[1] == before + 0.5 && in[2] == 0);
  EXPECT_OK(dl_message_what(first, &what));
  EXPECT(what.source == DL_ANY_SOURCE && what.count == 0);
  EXPECT_FAILS(DL_MISUSE, "the message is empty",
               dl_recv_matched(comm, first, DL_VIEW(in, 4), NULL, DL_HERE));
  dl_message_free(first);
  dl_message_free(NULL);
  EXPECT_FAILS(DL_MISUSE, "'message' is a null pointer", dl_match(comm, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'found' is a null pointer", dl_try_match(comm, 0, NULL, &first, NULL));
  EXPECT_FAILS(DL_MISUSE, "'message' is a null pointer",
               dl_recv_matched(comm, NULL, DL_VIEW(in, 1), NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_message", dl_message_what(NULL, &what));
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
  wrong.up_to = 2;
  EXPECT_FAILS(DL_MISUSE, "'up_to' is 0, or 1", dl_batch(comm, &wrong, 1, NULL));
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
  starts_probes();
  starts();
  frees_each_of_many();
  receives_what_is_shorter();
  waits_for_some();
  waits_for_a_while();
  sends_until_received();
  matches();
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
