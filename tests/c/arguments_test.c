/* Every collective of the C API, and every v-form, blocking and started, with every argument wrong:
 * a sentence that names the call and the argument. All ranks give the same, so that the
 * communicator stays usable. */
#include "expect.h"

enum { EACH = 2, RANKS_MAX = 16, WHOLE_MAX = EACH * RANKS_MAX };

static dl_comm* comm;
static size_t size;

/* The arguments of a call; right, unless a fault has been put in. */
typedef struct given {
  float part[WHOLE_MAX], all[WHOLE_MAX];
  size_t counts[RANKS_MAX];
  const size_t* counts_given;
  dl_view small, large;
  int root;
  dl_reduction reduction;
  dl_options options;
} given;

static given right(void) {
  given g;
  memset(&g, 0, sizeof g);
  for (size_t r = 0; r < size; ++r) g.counts[r] = EACH;
  g.reduction = dl_op(DL_SUM);
  g.options = dl_make_options(__FILE__, __LINE__, __func__);
  return g;
}

/* Points it to its final place. */
static void point(given* g) {
  g->counts_given = g->counts;
  g->small = dl_make_view(g->part, EACH, DL_F32);
  g->large = dl_make_view(g->all, EACH * size, DL_F32);
}

static dl_const_view read_of(dl_view view) {
  dl_const_view read;
  memset(&read, 0, sizeof read);
  read.data = view.data;
  read.count = view.count;
  read.dtype = view.dtype;
  read.place = view.place;
  read.stride = view.stride;
  return read;
}

/* A part for each rank. */
static dl_const_view whole_of(given* g) {
  return read_of(dl_make_view(g->part, EACH * size, DL_F32));
}

/* The blocking form, or the started one, whose error comes with its wait. */
#define CALL(name, ...)                                                        \
  do {                                                                         \
    if (!started) return dl_##name(comm, __VA_ARGS__ & g->options);            \
    dl_work* work = NULL;                                                      \
    dl_status status = dl_start_##name(comm, __VA_ARGS__ & work, &g->options); \
    if (status == DL_OK) status = dl_work_wait(work);                          \
    dl_work_free(work);                                                        \
    return status;                                                             \
  } while (0)
#define COLLECTIVE(name, ...) \
  static dl_status call_##name(given* g, int started) { CALL(name, __VA_ARGS__); }

COLLECTIVE(barrier, )
COLLECTIVE(broadcast, g->small, g->root, )
COLLECTIVE(reduce, read_of(g->small), g->large, g->root, g->reduction, )
COLLECTIVE(all_reduce, g->small, g->reduction, )
COLLECTIVE(all_gather, read_of(g->small), g->large, )
COLLECTIVE(all_gather_v, read_of(g->small), g->large, g->counts_given, )
COLLECTIVE(gather, read_of(g->small), g->large, g->root, )
COLLECTIVE(gather_v, read_of(g->small), g->large, g->counts_given, g->root, )
COLLECTIVE(scatter, read_of(g->large), g->small, g->root, )
COLLECTIVE(scatter_v, read_of(g->large), g->small, g->counts_given, g->root, )
COLLECTIVE(reduce_scatter, read_of(g->large), g->small, g->reduction, )
COLLECTIVE(reduce_scatter_v, read_of(g->large), g->small, g->counts_given, g->reduction, )
COLLECTIVE(all_to_all, whole_of(g), g->large, )
COLLECTIVE(all_to_all_v, whole_of(g), g->counts_given, g->large, g->counts_given, )
COLLECTIVE(scan, read_of(g->small), dl_make_view(g->all, EACH, DL_F32), g->reduction, )
COLLECTIVE(exscan, read_of(g->small), dl_make_view(g->all, EACH, DL_F32), g->reduction, )

/* The faults that it can have. */
enum {
  ROOT = 1,
  SMALL = 2,
  LARGE = 4, /* All ranks look at it. */
  COUNTS = 8,
  REDUCES = 16,
};
static const struct collective {
  const char* name;
  dl_status (*call)(given*, int started);
  int has;
  const char *small, *large;
} collectives[] = {
    {"barrier", call_barrier, 0, "", ""},
    {"broadcast", call_broadcast, ROOT | SMALL, "'inout'", ""},
    {"reduce", call_reduce, ROOT | SMALL | REDUCES, "'in'", ""},
    {"all_reduce", call_all_reduce, SMALL | REDUCES, "'inout'", ""},
    {"all_gather", call_all_gather, SMALL | LARGE, "'in'", "'out'"},
    {"all_gather_v", call_all_gather_v, SMALL | LARGE | COUNTS, "'in'", "'out'"},
    {"gather", call_gather, ROOT | SMALL, "'in'", "'out'"},
    {"gather_v", call_gather_v, ROOT | SMALL, "'in'", "'out'"},
    {"scatter", call_scatter, ROOT | SMALL, "'out'", "'in'"},
    {"scatter_v", call_scatter_v, ROOT | SMALL, "'out'", "'in'"},
    {"reduce_scatter", call_reduce_scatter, SMALL | LARGE | REDUCES, "'out'", "'in'"},
    {"reduce_scatter_v", call_reduce_scatter_v, SMALL | LARGE | COUNTS | REDUCES, "'out'", "'in'"},
    {"all_to_all", call_all_to_all, LARGE, "'in'", "'out'"},
    {"all_to_all_v", call_all_to_all_v, LARGE | COUNTS, "'in'", "'out'"},
    {"scan", call_scan, SMALL | REDUCES, "'in'", ""},
    {"exscan", call_exscan, SMALL | REDUCES, "'in'", ""},
};

/* The call is refused, by a sentence with its name and these two. */
static void refused(const struct collective* c, given* g, const char* argument, const char* what) {
  for (int started = 0; started <= 1; ++started) {
    const dl_status status = c->call(g, started);
    const char* said = dl_last_message(NULL);
    if (status == DL_MISUSE && strstr(said, c->name) != NULL && strstr(said, argument) != NULL &&
        strstr(said, what) != NULL) {
      continue;
    }
    fprintf(stderr, "%s%s was to be refused with %s ... %s\n  but: %s: %s\n",
            started ? "start_" : "", c->name, argument, what, dl_status_text(status), said);
    exit(1);
  }
}

static void refuses(const struct collective* c) {
  given g = right();
#define WITH(fault, argument, what) \
  do {                              \
    point(&g);                      \
    fault;                          \
    refused(c, &g, argument, what); \
    g = right();                    \
  } while (0)
  WITH(g.options.timeout_ms = -7, "a timeout", "is not negative");
  if (c->has & ROOT) WITH(g.root = (int)size, "root", "there is no rank");
  if (c->has & ROOT) WITH(g.root = -1, "root", "there is no rank -1");
  if (c->has & SMALL) {
    WITH(g.small.data = NULL, c->small, "a null pointer was given for 2 elements");
    WITH(g.small.dtype = 99, c->small, "the number 99 is no dtype");
    WITH(g.small.count = SIZE_MAX / 2, c->small, "elements are more than memory may hold");
    WITH(g.small.stride = PTRDIFF_MAX, c->small, "reach further than memory may");
  }
  if (c->has & LARGE) {
    WITH(g.large.data = NULL, c->large, "a null pointer was given for");
    WITH(g.large.dtype = DL_I32, c->large, "it has i32 elements, but");
    WITH(--g.large.count, c->large, "elements is needed, one of");
    WITH(g.large.data = (char*)g.small.data + 1, "'in' and 'out'", "overlap");
  }
  if (c->has & COUNTS) {
    WITH(g.counts_given = NULL, "counts", c->has & SMALL ? "0 counts were given" : "one entry");
  }
  if (c->has & REDUCES) {
    WITH((g.reduction = dl_op(DL_BOR)), "bor", "bitwise operations are for integers");
  }
}

/* The others hear of what one rank alone gives wrong, also where C++ has no value for it. */
static void tells(const char* fault, dl_reduction reduction, dl_dtype dtype, int32_t place) {
  const int is_wrong = dl_comm_rank(comm) == 0;
  for (int started = 0; started <= 1; ++started) {
    dl_comm* own = NULL;
    EXPECT_OK(dl_comm_duplicate(comm, &own, DL_HERE));
    float x = 1;
    dl_view view = dl_make_view(&x, 1, is_wrong ? dtype : DL_F32);
    if (is_wrong) view.place = place;
    const dl_reduction by = is_wrong ? reduction : dl_op(DL_SUM);
    dl_work* work = NULL;
    dl_status status = started ? dl_start_all_reduce(own, view, by, &work, DL_HERE)
                               : dl_all_reduce(own, view, by, DL_HERE);
    if (started && status == DL_OK) status = dl_work_wait(work);
    const char* said = dl_last_message(NULL);
    const char* wanted = is_wrong ? fault : "were wrong";
    if (status != (is_wrong ? DL_MISUSE : DL_MISMATCH) || strstr(said, wanted) == NULL) {
      fprintf(stderr, "%s was to be found: %s: %s\n", fault, dl_status_text(status), said);
      exit(1);
    }
    dl_work_free(work);
    dl_comm_free(own);
  }
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  size = (size_t)dl_comm_size(comm);
  EXPECT(size <= RANKS_MAX);
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; ++i) refuses(&collectives[i]);
  EXPECT_OK(dl_barrier(comm, DL_HERE));

  const dl_reduction sum = dl_op(DL_SUM);
  dl_reduction unordered = sum;
  unordered.order = 7;
  tells("the number 99 is no dl_reduce_op", dl_op(99), DL_F32, DL_HOST);
  tells("the number 7 is no dl_reduce_order", unordered, DL_F32, DL_HOST);
  tells("needs a name and a function", dl_op(DL_CUSTOM), DL_F32, DL_HOST);
  tells("an index is i32 or i64", dl_op_min_located(DL_F64, DL_F32), DL_F32, DL_HOST);
  tells("the number 300 is no dtype", sum, 300, DL_HOST);
  tells("DL_CUDA(device), not -5", sum, DL_F32, -5);
  EXPECT_OK(dl_barrier(comm, DL_HERE));

  /* After an error each gives it again. */
  dl_comm_abort(comm);
  for (size_t i = 0; i < sizeof collectives / sizeof *collectives; ++i) {
    given g = right();
    point(&g);
    for (int started = 0; started <= 1; ++started) {
      const dl_status status = collectives[i].call(&g, started);
      EXPECT(status == DL_ABORTED || status == DL_PEER_LOST);
    }
  }
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
