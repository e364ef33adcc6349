/* Gradients: their mean on all ranks, in the caller's memory and in the reducer's. */
#include "expect.h"

static dl_comm* comm;
static int rank;
static size_t size;

enum { LARGE = 5000, PARAMETERS = 3 };

static float values[PARAMETERS][LARGE], gradients[PARAMETERS][LARGE];
static const size_t counts[PARAMETERS] = {LARGE, 6, 1};

static float element(int r, size_t i, size_t j) { return (float)((r + 1) * (int)((i + j) % 7)); }
static float mean_of(size_t i, size_t j) {
  float sum = 0;
  for (int r = 0; r < (int)size; ++r) sum += element(r, i, j);
  return sum / (float)size;
}
static int is_close(float a, float b) { return a - b < 1e-4F && b - a < 1e-4F; }

static void fill(dl_reducer* reducer) {
  for (size_t i = PARAMETERS; i-- > 0;) {
    dl_view gradient;
    EXPECT_OK(dl_reducer_gradient(reducer, i, &gradient));
    EXPECT(gradient.count == counts[i] && gradient.dtype == DL_F32 && gradient.place == DL_HOST);
    for (size_t j = 0; j < counts[i]; ++j) ((float*)gradient.data)[j] = element(rank, i, j);
    EXPECT_OK(dl_reducer_ready(reducer, i, DL_HERE));
  }
}

static void check(dl_reducer* reducer, int is_mean) {
  for (size_t i = 0; i < PARAMETERS; ++i) {
    dl_view gradient;
    EXPECT_OK(dl_reducer_gradient(reducer, i, &gradient));
    for (size_t j = 0; j < counts[i]; ++j) {
      const float wanted = is_mean ? mean_of(i, j) : element(rank, i, j);
      EXPECT(is_close(((float*)gradient.data)[j], wanted));
    }
  }
}

static void trains(void) {
  const int64_t shape[2] = {2, 3};
  const dl_view provided = {NULL, 0, 0, 0, 0};
  dl_parameter parameters[PARAMETERS];
  for (size_t i = 0; i < PARAMETERS; ++i) {
    for (size_t j = 0; j < counts[i]; ++j) values[i][j] = (float)rank + 1;
    parameters[i] = dl_make_parameter("weights", DL_VIEW(values[i], counts[i]),
                                      i == 0 ? provided : DL_VIEW(gradients[i], counts[i]));
  }
  parameters[1].shape = shape;
  parameters[1].axes = 2;
  double average = rank + 10;
  const dl_view buffer = DL_VIEW(&average, 1);
  dl_reducer_settings settings = dl_make_reducer_settings();
  settings.first_bucket_bytes = 16; /* The two small ones. */
  settings.bucket_bytes = 64;
  settings.keep_buckets = 1;
  dl_reducer* reducer = NULL;
  EXPECT_OK(
      dl_reducer_create(comm, parameters, PARAMETERS, &buffer, 1, &settings, &reducer, DL_HERE));
  EXPECT(values[0][LARGE - 1] == 1 && values[2][0] == 1); /* Rank 0's. */
  size_t first = 9, last = 9;
  EXPECT_OK(dl_reducer_bucket(reducer, PARAMETERS - 1, &first));
  EXPECT_OK(dl_reducer_bucket(reducer, 0, &last));
  EXPECT(first == 0 && last == 1); /* The gradients computed first are summed first. */
  for (int step = 0; step < 4; ++step) {
    EXPECT_OK(dl_reducer_set_sync(reducer, step != 1));
    EXPECT_OK(dl_reducer_begin(reducer, DL_HERE));
    fill(reducer);
    EXPECT_OK(dl_reducer_finish(reducer, DL_HERE));
    check(reducer, step != 1);
  }
  EXPECT(average == 10);
  dl_view gradient;
  EXPECT_FAILS(DL_MISUSE, "there are 3 parameters", dl_reducer_gradient(reducer, 3, &gradient));
  EXPECT_FAILS(DL_MISUSE, "there is no parameter 3", dl_reducer_bucket(reducer, 3, &first));
  EXPECT_FAILS(DL_MISUSE, "'gradient'", dl_reducer_gradient(reducer, 0, NULL));
  dl_reducer_free(reducer);
}

static void refuses_nonsense(void) {
  dl_reducer* reducer = NULL;
  dl_parameter parameter = dl_make_parameter(NULL, DL_VIEW(values[2], 1), DL_VIEW(gradients[2], 1));
  EXPECT_FAILS(DL_MISUSE, "the dl_comm is a null pointer",
               dl_reducer_create(NULL, &parameter, 1, NULL, 0, NULL, &reducer, NULL));
  EXPECT_FAILS(DL_MISUSE, "'parameters' is a null pointer",
               dl_reducer_create(comm, NULL, 1, NULL, 0, NULL, &reducer, NULL));
  EXPECT_FAILS(DL_MISUSE, "'buffers' is a null pointer",
               dl_reducer_create(comm, &parameter, 1, NULL, 1, NULL, &reducer, NULL));
  EXPECT_FAILS(DL_MISUSE, "'reducer' is a null pointer",
               dl_reducer_create(comm, &parameter, 1, NULL, 0, NULL, NULL, NULL));
  dl_reducer_settings settings = {.struct_size = 3};
  EXPECT_FAILS(DL_MISUSE, "a dl_reducer_settings with struct_size 3",
               dl_reducer_create(comm, &parameter, 1, NULL, 0, &settings, &reducer, NULL));
  parameter.axes = 2;
  EXPECT_FAILS(DL_MISUSE, "'shape' has 0 to 64 axes",
               dl_reducer_create(comm, &parameter, 1, NULL, 0, NULL, &reducer, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_reducer", dl_reducer_begin(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_reducer", dl_reducer_ready(NULL, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_reducer", dl_reducer_finish(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_reducer", dl_reducer_set_sync(NULL, 1));
  dl_reducer_free(NULL);

  /* The last thing that this communicator does. */
  parameter.axes = 0;
  EXPECT_OK(dl_reducer_create(comm, &parameter, 1, NULL, 0, NULL, &reducer, DL_HERE));
  EXPECT_FAILS(DL_MISUSE, "finish() without begin()", dl_reducer_finish(reducer, DL_HERE));
  dl_reducer_free(reducer);
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  rank = dl_comm_rank(comm);
  size = (size_t)dl_comm_size(comm);
  trains();
  refuses_nonsense();
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
