/* Reductions: those of the library, of a program's own, of structs, and of one rank alone. */
#include "expect.h"

static dl_comm* comm;
static int rank;
static size_t size;

/* Largest magnitude; counts its calls. */
static void farthest(void* argument, void* accumulated, const void* next, size_t count,
                     dl_dtype dtype) {
  EXPECT(dtype == DL_F64);
  ++*(int*)argument;
  double* a = accumulated;
  const double* b = next;
  for (size_t i = 0; i < count; ++i) {
    if (b[i] * b[i] > a[i] * a[i]) a[i] = b[i];
  }
}

static void takes_operations(void) {
  const double n = (double)size;
  float x[3] = {1, 2, 3};
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(x, 3), dl_op_premul_sum(0.5), DL_HERE));
  EXPECT(x[0] == (float)(0.5 * n) && x[2] == (float)(1.5 * n));
  double y[2] = {-rank - 1, 1};
  int calls = 0;
  EXPECT_OK(
      dl_all_reduce(comm, DL_VIEW(y, 2), dl_op_custom("farthest", farthest, &calls), DL_HERE));
  EXPECT(y[0] == -n && y[1] == 1);
  y[0] = rank + 1;
  dl_work* work = NULL;
  EXPECT_OK(dl_start_all_reduce(comm, DL_VIEW(y, 1), dl_op_custom("farthest", farthest, &calls),
                                &work, DL_HERE));
  EXPECT_OK(dl_work_wait(work));
  dl_work_free(work);
  EXPECT(y[0] == n && (size == 1 || rank != 0 || calls > 0));

  int z[2] = {rank, 7};
  EXPECT_FAILS(DL_MISUSE, "or sum and divide",
               dl_all_reduce(comm, DL_VIEW(z, 2), dl_op(DL_MEAN), DL_HERE));
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(z, 2), dl_op(DL_MEAN), &DL_OPTIONS(.truncate_mean = 1)));
  EXPECT(z[0] == (int)(size - 1) / 2 && z[1] == 7);
  unsigned char bits[1] = {(unsigned char)(1u << (rank % 8))};
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(bits, 1), dl_op(DL_BOR), DL_HERE));
  EXPECT(bits[0] == (1u << size) - 1);
  _Bool flag = rank == 0;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&flag, 1), dl_op(DL_PRODUCT), DL_HERE));
  EXPECT(flag == (size == 1));
  float _Complex c = 1.0f;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(&c, 1), dl_op(DL_SUM), DL_HERE));
  EXPECT(c == (float)size);
}

/* x -> by * x + plus, as a struct: in another order they come to something else. */
typedef struct affine {
  int64_t by, plus, ranks;
} affine;
static void compose(void* argument, void* accumulated, const void* next, size_t count,
                    dl_dtype dtype) {
  EXPECT(argument == NULL && dtype == DL_U8);
  affine* a = accumulated;
  const affine* b = next;
  for (size_t i = 0; i < count; ++i) {
    a[i].plus = b[i].by * a[i].plus + b[i].plus;
    a[i].by *= b[i].by;
    a[i].ranks += b[i].ranks;
  }
}

static void takes_structs(void) {
  enum { COUNT = 5 };
  affine all[COUNT], wanted = {1, 0, 0};
  for (int i = 0; i < COUNT; ++i) all[i] = (affine){rank + 2, rank + 1, 1};
  for (int r = 0; r < (int)size; ++r) {
    wanted = (affine){wanted.by * (r + 2), (r + 2) * wanted.plus + r + 1, wanted.ranks + 1};
  }
  const dl_reduction by = dl_op_custom_of(sizeof(affine), "compose", compose, NULL);
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW((unsigned char*)all, sizeof all), by, DL_HERE));
  for (int i = 0; i < COUNT; ++i) {
    EXPECT(all[i].by == wanted.by && all[i].plus == wanted.plus && all[i].ranks == (int64_t)size);
  }
  EXPECT_FAILS(DL_MISUSE, "no whole number of the elements of 24 bytes",
               dl_all_reduce(comm, DL_VIEW((unsigned char*)all, 25), by, DL_HERE));

  struct {
    double value;
    int32_t index;
  } least = {rank % 2 == 0 ? -1.5 : 3, rank}, greatest = least;
  const size_t bytes = sizeof least;
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW((unsigned char*)&least, bytes),
                          dl_op_min_located(DL_F64, DL_I32), DL_HERE));
  EXPECT(least.value == -1.5 && least.index == 0);
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW((unsigned char*)&greatest, bytes),
                          dl_op_max_located(DL_F64, DL_I32), DL_HERE));
  EXPECT(greatest.value == (size > 1 ? 3 : -1.5) && greatest.index == (size > 1 ? 1 : 0));
  EXPECT_FAILS(DL_MISUSE, "min_located of c64 at i32 makes no sense: such values have no order",
               dl_all_reduce(comm, DL_VIEW((unsigned char*)&least, bytes),
                             dl_op_min_located(DL_C64, DL_I32), DL_HERE));
}

static void reduces_alone(void) {
  const int in[3] = {1, 0, 7};
  int inout[3] = {2, 5, 0};
  EXPECT_OK(dl_reduce_local(DL_CONST_VIEW(in, 3), DL_VIEW(inout, 3), dl_op(DL_LAND)));
  EXPECT(inout[0] == 1 && inout[1] == 0 && inout[2] == 0);
  EXPECT_FAILS(DL_MISUSE, "'inout' has 2 i32 elements",
               dl_reduce_local(DL_CONST_VIEW(in, 3), DL_VIEW(inout, 2), dl_op(DL_SUM)));
}

static void fails(void* argument, void* accumulated, const void* next, size_t count,
                  dl_dtype dtype) {
  (void)accumulated, (void)next, (void)count, (void)dtype;
  dl_fold_failed(argument);
}

/* On all ranks, whichever of them folds. */
static void hears_why_a_fold_failed(const dl_world* world) {
  int in[2] = {1, 2}, inout[2] = {3, 4};
  EXPECT_FAILS(DL_INTERNAL, "dl_reduce_local: no such animal",
               dl_reduce_local(DL_CONST_VIEW(in, 2), DL_VIEW(inout, 2),
                               dl_op_custom("fails", fails, "no such animal")));
  if (size == 1) return;
  dl_comm* broken = NULL;
  EXPECT_OK(dl_comm_create(world, NULL, &broken));
  EXPECT_OK(dl_comm_set_timeout(broken, 60000));
  EXPECT_FAILS(DL_INTERNAL, "no such animal",
               dl_all_reduce(broken, DL_VIEW(inout, 2),
                             dl_op_custom("fails", fails, "no such animal"), DL_HERE));
  EXPECT_FAILS(DL_INTERNAL, "no such animal", dl_barrier(broken, DL_HERE));
  dl_comm_free(broken);
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  rank = dl_comm_rank(comm);
  size = (size_t)dl_comm_size(comm);
  takes_operations();
  takes_structs();
  reduces_alone();
  hears_why_a_fold_failed(world);
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
