/* Every collective, blocking and started, with results worked out by hand. */
#include "expect.h"

static dl_comm* comm;
static int rank;
static size_t size;

/* The blocking form, or the started one to its end. */
#define RUN(started, name, ...)                                         \
  do {                                                                  \
    if (!(started)) {                                                   \
      EXPECT_OK(dl_##name(comm, __VA_ARGS__ DL_HERE));                  \
    } else {                                                            \
      dl_work* work_ = NULL;                                            \
      EXPECT_OK(dl_start_##name(comm, __VA_ARGS__& work_, DL_HERE));    \
      EXPECT_OK(dl_work_wait(work_));                                   \
      EXPECT(dl_work_done(work_) == 1 && dl_work_wait(work_) == DL_OK); \
      dl_work_free(work_);                                              \
    }                                                                   \
  } while (0)

enum { MANY = 300 };

/* The value that rank r has at i. */
static int64_t of(size_t r, size_t i) { return (int64_t)(r * 1000 + i); }
static int64_t sum_of(size_t i) {
  int64_t sum = 0;
  for (size_t r = 0; r < size; ++r) sum += of(r, i);
  return sum;
}
/* counts[r] of the v-forms: r + 1, and where the part of r begins. */
static size_t start_of(size_t r) { return r * (r + 1) / 2; }

static void fill(int64_t* x, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] = of((size_t)rank, i);
}

static void copies(int started) {
  const int root = (int)size - 1;
  const size_t me = (size_t)rank;
  int64_t x[MANY], all[MANY];
  RUN(started, barrier, );
  fill(x, 5);
  RUN(started, broadcast, DL_VIEW(x, 5), root, );
  for (size_t i = 0; i < 5; ++i) EXPECT(x[i] == of((size_t)root, i));

  fill(x, 3);
  RUN(started, all_gather, DL_CONST_VIEW(x, 3), DL_VIEW(all, 3 * size), );
  for (size_t i = 0; i < 3 * size; ++i) EXPECT(all[i] == of(i / 3, i % 3));
  memset(all, 0, sizeof all);
  RUN(started, gather, DL_CONST_VIEW(x, 3), DL_VIEW(all, rank == root ? 3 * size : 0), root, );
  for (size_t i = 0; i < 3 * size; ++i) EXPECT(all[i] == (rank == root ? of(i / 3, i % 3) : 0));

  size_t* counts = calloc(size, sizeof *counts);
  for (size_t r = 0; r < size; ++r) counts[r] = r + 1;
  fill(x, me + 1);
  RUN(started, all_gather_v, DL_CONST_VIEW(x, me + 1), DL_VIEW(all, start_of(size)), counts, );
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i <= r; ++i) EXPECT(all[start_of(r) + i] == of(r, i));
  }
  memset(all, 0, sizeof all);
  RUN(started, gather_v, DL_CONST_VIEW(x, me + 1), DL_VIEW(all, rank == root ? start_of(size) : 0),
      rank == root ? counts : NULL, root, );
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i <= r; ++i) EXPECT(all[start_of(r) + i] == (rank == root ? of(r, i) : 0));
  }

  dl_view* out = calloc(size, sizeof *out);
  dl_const_view* in = calloc(size, sizeof *in);
  for (size_t r = 0; r < size; ++r) {
    out[r] = DL_VIEW(all + 2 * start_of(r), r + 1);
    in[r] = DL_CONST_VIEW(all + 2 * start_of(r), r + 1);
    out[r].stride = 2;
  }
  RUN(started, all_gather_list, DL_CONST_VIEW(x, me + 1), out, );
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i <= r; ++i) EXPECT(all[2 * start_of(r) + 2 * i] == of(r, i));
  }
  memset(all, 0, sizeof all);
  RUN(started, gather_list, DL_CONST_VIEW(x, me + 1), rank == root ? out : NULL, root, );
  for (size_t r = 0; r < size && rank == root; ++r) {
    for (size_t i = 0; i <= r; ++i) EXPECT(all[2 * start_of(r) + 2 * i] == of(r, i));
  }
  fill(all, MANY);
  RUN(started, scatter_list, rank == root ? in : NULL, DL_VIEW(x, me + 1), root, );
  for (size_t i = 0; i <= me; ++i) EXPECT(x[i] == of((size_t)root, 2 * start_of(me) + i));
  RUN(started, reduce_scatter_list, in, DL_VIEW(x, me + 1), dl_op(DL_SUM), );
  for (size_t i = 0; i <= me; ++i) EXPECT(x[i] == sum_of(2 * start_of(me) + i));
  free(out);
  free(in);

  fill(all, MANY);
  RUN(started, scatter, DL_CONST_VIEW(all, rank == root ? 3 * size : 0), DL_VIEW(x, 3), root, );
  for (size_t i = 0; i < 3; ++i) EXPECT(x[i] == of((size_t)root, 3 * me + i));
  RUN(started, scatter_v, DL_CONST_VIEW(all, rank == root ? start_of(size) : 0), DL_VIEW(x, me + 1),
      rank == root ? counts : NULL, root, );
  for (size_t i = 0; i <= me; ++i) EXPECT(x[i] == of((size_t)root, start_of(me) + i));
  free(counts);
}

static void exchanges(int started) {
  const size_t me = (size_t)rank;
  int64_t x[MANY], y[MANY];
  fill(x, 2 * size);
  RUN(started, all_to_all, DL_CONST_VIEW(x, 2 * size), DL_VIEW(y, 2 * size), );
  for (size_t i = 0; i < 2 * size; ++i) EXPECT(y[i] == of(i / 2, 2 * me + i % 2));

  /* Rank i sends j + 1 elements to rank j. */
  size_t *in = calloc(size, sizeof *in), *out = calloc(size, sizeof *out);
  for (size_t r = 0; r < size; ++r) {
    in[r] = r + 1;
    out[r] = me + 1;
  }
  fill(x, start_of(size));
  RUN(started, all_to_all_v, DL_CONST_VIEW(x, start_of(size)), in, DL_VIEW(y, size * (me + 1)),
      out, );
  for (size_t i = 0; i < size * (me + 1); ++i) {
    EXPECT(y[i] == of(i / (me + 1), start_of(me) + i % (me + 1)));
  }
  dl_const_view* given = calloc(size, sizeof *given);
  dl_view* got = calloc(size, sizeof *got);
  for (size_t r = 0; r < size; ++r) {
    given[r] = DL_CONST_VIEW(x + start_of(size - 1) - start_of(r), r + 1);
    got[r] = DL_VIEW(y + (size - 1 - r) * (me + 1), me + 1);
  }
  fill(x, start_of(size));
  RUN(started, all_to_all_list, given, got, );
  for (size_t r = 0; r < size; ++r) {
    for (size_t i = 0; i <= me; ++i) {
      EXPECT(y[(size - 1 - r) * (me + 1) + i] == of(r, start_of(size - 1) - start_of(me) + i));
    }
  }
  free(given);
  free(got);
  free(in);
  free(out);
}

static void folds(int started) {
  const int root = 0;
  const size_t me = (size_t)rank;
  int64_t x[MANY], y[MANY] = {0};
  fill(x, 7);
  RUN(started, reduce, DL_CONST_VIEW(x, 7), DL_VIEW(y, rank == root ? 7 : 0), root,
      dl_op(DL_SUM), );
  for (size_t i = 0; i < 7; ++i) EXPECT(y[i] == (rank == root ? sum_of(i) : 0));
  RUN(started, all_reduce, DL_VIEW(x, 7), dl_op(DL_MAX), );
  for (size_t i = 0; i < 7; ++i) EXPECT(x[i] == of(size - 1, i));
  fill(x, 7);
  RUN(started, all_reduce_into, DL_CONST_VIEW(x, 7), DL_VIEW(y, 7), dl_op(DL_SUM), );
  for (size_t i = 0; i < 7; ++i) EXPECT(y[i] == sum_of(i) && x[i] == of(me, i));

  fill(x, 2 * size);
  RUN(started, reduce_scatter, DL_CONST_VIEW(x, 2 * size), DL_VIEW(y, 2), dl_op(DL_SUM), );
  for (size_t i = 0; i < 2; ++i) EXPECT(y[i] == sum_of(2 * me + i));
  size_t* counts = calloc(size, sizeof *counts);
  for (size_t r = 0; r < size; ++r) counts[r] = r + 1;
  fill(x, start_of(size));
  RUN(started, reduce_scatter_v, DL_CONST_VIEW(x, start_of(size)), DL_VIEW(y, me + 1), counts,
      dl_op(DL_SUM), );
  for (size_t i = 0; i <= me; ++i) EXPECT(y[i] == sum_of(start_of(me) + i));
  free(counts);
}

/* The second column of a matrix, and a row backwards. */
static void takes_strides(void) {
  float matrix[3][4] = {{0}};
  for (int row = 0; row < 3; ++row) matrix[row][1] = (float)(row + rank);
  dl_view column = DL_VIEW(&matrix[0][1], 3);
  column.stride = 4;
  EXPECT_OK(dl_all_reduce(comm, column, dl_op(DL_MIN), DL_HERE));
  for (int row = 0; row < 3; ++row) EXPECT(matrix[row][1] == (float)row && matrix[row][2] == 0);
  int row[4] = {rank, rank + 1, rank + 2, rank + 3};
  dl_const_view backwards = DL_CONST_VIEW(&row[3], 4);
  backwards.stride = -1;
  int* all = calloc(4 * size, sizeof *all);
  EXPECT_OK(dl_all_gather(comm, backwards, DL_VIEW(all, 4 * size), DL_HERE));
  for (size_t i = 0; i < 4 * size; ++i) EXPECT(all[i] == (int)(i / 4 + 3 - i % 4));
  free(all);
  const dl_view zero_stride = {row, 4, 0, DL_I32, DL_HOST}; /* Stands for 1. */
  EXPECT_OK(dl_broadcast(comm, zero_stride, 0, DL_HERE));
  EXPECT(row[3] == 3);
}

/* Buffers that only the root reads or writes need not exist elsewhere. */
static void takes_nothing(void) {
  const dl_view nothing = {0};
  const dl_const_view nothing_to_read = {0};
  int one = rank, all[8] = {0};
  EXPECT(size <= 8);
  const dl_view out = rank == 0 ? DL_VIEW(all, size) : nothing;
  EXPECT_OK(dl_gather(comm, DL_CONST_VIEW(&one, 1), out, 0, NULL));
  for (size_t i = 0; i < size; ++i) EXPECT(all[i] == (rank == 0 ? (int)i : 0));
  const dl_const_view in = rank == 0 ? DL_CONST_VIEW(all, size) : nothing_to_read;
  EXPECT_OK(dl_scatter(comm, in, DL_VIEW(&one, 1), 0, NULL));
  EXPECT(one == rank);
  const dl_view sum = rank == 0 ? DL_VIEW(all, 1) : nothing;
  EXPECT_OK(dl_reduce(comm, DL_CONST_VIEW(&one, 1), sum, 0, dl_op(DL_SUM), NULL));
  EXPECT(all[0] == (rank == 0 ? (int)(size * (size - 1) / 2) : 0));
  EXPECT_OK(dl_all_reduce(comm, dl_make_view(NULL, 0, DL_F32), dl_op(DL_SUM), NULL));
}

static void starts_several(void) {
  dl_work* works[3] = {NULL, NULL, NULL};
  int64_t x[3][50];
  for (int k = 0; k < 3; ++k) {
    for (size_t i = 0; i < 50; ++i) x[k][i] = rank + k;
    EXPECT_OK(dl_start_all_reduce(comm, DL_VIEW(x[k], 50), dl_op(DL_SUM), &works[k], DL_HERE));
  }
  int done = 0;
  while (!done) EXPECT_OK(dl_work_test(works[2], &done));
  EXPECT_FAILS(DL_UNSUPPORTED, "wait for it", dl_work_order_before(works[2], NULL));
  EXPECT(strstr(dl_last_message(works[2]), "order_before") != NULL);
  for (int k = 2; k >= 0; --k) {
    EXPECT_OK(dl_work_wait(works[k]));
    EXPECT(x[k][49] == (int64_t)(size * (size - 1) / 2 + size * (size_t)k));
    dl_work_free(works[k]);
  }
  int y = 1;
  EXPECT_OK(dl_start_all_reduce(comm, DL_VIEW(&y, 1), dl_op(DL_SUM), &works[0], DL_HERE));
  dl_work_free(works[0]); /* Waits. */
  EXPECT(y == (int)size);
}

static void scans(int started) {
  int64_t x[MANY], sums[MANY], before[MANY];
  fill(x, 5);
  memset(before, 0, sizeof before);
  RUN(started, scan, DL_CONST_VIEW(x, 5), DL_VIEW(sums, 5), dl_op(DL_SUM), );
  RUN(started, exscan, DL_CONST_VIEW(x, 5), DL_VIEW(before, 5), dl_op(DL_SUM), );
  for (size_t i = 0; i < 5; ++i) {
    int64_t sum = 0;
    for (size_t r = 0; r < (size_t)rank; ++r) sum += of(r, i);
    EXPECT(before[i] == sum); /* Rank 0's is not written. */
    EXPECT(sums[i] == sum + of((size_t)rank, i));
  }
}

static void takes_orders(void) {
  /* 2^24 + 1 + 1...: from left to right each 1 is lost, in pairs all but one are kept. */
  const float mine = rank == 0 ? 16777216.0F : 1.0F;
  float left = mine, pairs = mine, any = mine;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&left, 1), dl_op(DL_SUM), DL_HERE));
  EXPECT(left == 16777216.0F);
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&pairs, 1), dl_canonical(dl_op(DL_SUM)), DL_HERE));
  EXPECT(pairs == (size == 4 ? 16777218.0F : 16777216.0F));
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&any, 1), dl_any_order(dl_op(DL_SUM)), DL_HERE));
  EXPECT(any >= 16777216.0F && any <= 16777216.0F + (float)size);
}

/* What a completion was told. */
typedef struct told {
  int count;
  dl_status status;
  char message[400];
  int64_t* sum; /* Looked at in the completion. */
  int64_t seen;
} told;

static void note(void* argument, dl_status status, const char* message) {
  told* all = argument;
  ++all->count;
  all->status = status;
  snprintf(all->message, sizeof all->message, "%s", message);
  if (all->sum != NULL) all->seen = *all->sum;
}

static void tells_of_its_end(void) {
  int64_t x = 1, y = 1;
  told good = {.sum = &x}, bad = {0};
  dl_work* works[4] = {NULL, NULL, NULL, NULL};
  EXPECT_OK(dl_start_all_reduce(comm, DL_VIEW(&x, 1), dl_op(DL_SUM), &works[1], DL_HERE));
  EXPECT_OK(dl_start_broadcast(comm, DL_VIEW(&y, 1), -1, &works[2], DL_HERE));
  EXPECT_OK(dl_work_on_complete(works[1], note, &good));
  EXPECT_OK(dl_work_on_complete(works[2], note, &bad));
  int done = 0;
  EXPECT_OK(dl_work_wait_for(works[1], 60000, &done));
  EXPECT(done == 1);
  size_t index = 99;
  EXPECT_OK(dl_work_wait_any(works, 4, 60000, &index));
  EXPECT(index == 1);
  EXPECT_FAILS(DL_MISUSE, "there is no rank -1", dl_work_wait_all(works, 4));
  EXPECT(good.count == 1 && good.status == DL_OK && good.message[0] == '\0');
  EXPECT(good.seen == (int64_t)size);
  EXPECT(bad.count == 1 && bad.status == DL_MISUSE);
  EXPECT(strstr(bad.message, "there is no rank -1") != NULL);
  EXPECT_OK(dl_work_on_complete(works[1], note, &good)); /* At once. */
  EXPECT(good.count == 2);
  dl_work_free(works[1]);
  dl_work_free(works[2]);
  works[1] = works[2] = NULL;
  EXPECT_OK(dl_work_wait_any(works, 4, 60000, &index));
  EXPECT(index == 4);
  EXPECT_OK(dl_work_wait_all(works, 4));

  int64_t in = 0;
  EXPECT_OK(dl_irecv(comm, DL_VIEW(&in, 1), rank, &works[0], DL_HERE));
  EXPECT_OK(dl_work_wait_for(works[0], 0, &done));
  EXPECT(done == 0);
  EXPECT_OK(dl_work_wait_any(works, 1, 1, &index));
  EXPECT(index == 1);
  EXPECT_FAILS(DL_UNSUPPORTED, "this is a message", dl_work_on_complete(works[0], note, &good));
  EXPECT_FAILS(DL_MISUSE, "'completion'", dl_work_on_complete(works[0], NULL, NULL));
  EXPECT_OK(dl_send(comm, DL_CONST_VIEW(&x, 1), rank, DL_HERE));
  EXPECT_OK(dl_work_wait(works[0]));
  EXPECT(in == x);
  dl_work_free(works[0]);
}

static void refuses_nonsense(void) {
  int x[4] = {0};
  dl_work* work = NULL;
  dl_view view = DL_VIEW(x, 4);
  EXPECT_FAILS(DL_MISUSE, "dl_all_reduce: the dl_comm is a null pointer",
               dl_all_reduce(NULL, view, dl_op(DL_SUM), NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_start_all_reduce: the dl_comm is a null pointer",
               dl_start_all_reduce(NULL, view, dl_op(DL_SUM), &work, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_start_barrier: 'work' is a null pointer",
               dl_start_barrier(comm, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "a null pointer was given for 3 elements",
               dl_broadcast(comm, dl_make_view(NULL, 3, DL_F32), 0, DL_HERE));
  EXPECT(strstr(dl_last_message(comm), "broadcast #") != NULL);
  EXPECT_FAILS(DL_MISUSE, "99 is no dtype", dl_broadcast(comm, dl_make_view(x, 1, 99), 0, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "dl_broadcast: the number 257 is no dtype",
               dl_broadcast(comm, dl_make_view(x, 1, 257), 0, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "there is no rank -3", dl_broadcast(comm, view, -3, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "the number 14 is no dl_reduce_op",
               dl_all_reduce(comm, view, dl_op(14), DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "needs a name and a function",
               dl_all_reduce(comm, view, dl_op(DL_CUSTOM), DL_HERE));
  dl_reduction newer = dl_op(DL_SUM);
  newer.order = 3;
  EXPECT_FAILS(DL_MISUSE, "the number 3 is no dl_reduce_order",
               dl_all_reduce(comm, view, newer, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "0 counts were given",
               dl_all_gather_v(comm, DL_CONST_VIEW(x, 1), view, NULL, DL_HERE));
  view.place = DL_CUDA(0);
  EXPECT_FAILS(DL_UNSUPPORTED, "CUDA", dl_all_reduce(comm, view, dl_op(DL_SUM), DL_HERE));
  view.place = -1;
  EXPECT_FAILS(DL_MISUSE, "DL_CUDA(device), not -1",
               dl_all_reduce(comm, view, dl_op(DL_SUM), DL_HERE));
  dl_options options = {.struct_size = 4};
  EXPECT_FAILS(DL_MISUSE, "a dl_options with struct_size 4", dl_barrier(comm, &options));
  EXPECT_FAILS(DL_MISUSE, "not negative", dl_barrier(comm, &DL_OPTIONS(.timeout_ms = -7)));
  EXPECT_OK(dl_barrier(comm, &DL_OPTIONS(.timeout_ms = INT64_MAX, .ordered_output = 1)));
  options = dl_make_options(__FILE__, __LINE__, __func__);
  EXPECT_OK(dl_barrier(comm, &options));

  EXPECT_FAILS(DL_MISUSE, "dl_work_wait: the dl_work", dl_work_wait(NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_work_test: the dl_work", dl_work_test(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_work", dl_work_order_before(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_work", dl_work_wait_for(NULL, 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_work", dl_work_on_complete(NULL, note, NULL));
  EXPECT_FAILS(DL_MISUSE, "'index'", dl_work_wait_any(NULL, 0, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "'works' is a null pointer for 2", dl_work_wait_all(NULL, 2));
  EXPECT(dl_work_done(NULL) == 1);
  dl_work_free(NULL);
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  rank = dl_comm_rank(comm);
  size = (size_t)dl_comm_size(comm);
  for (int started = 0; started <= 1; ++started) {
    copies(started);
    exchanges(started);
    folds(started);
    scans(started);
  }
  takes_orders();
  takes_strides();
  takes_nothing();
  starts_several();
  tells_of_its_end();
  refuses_nonsense();
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
