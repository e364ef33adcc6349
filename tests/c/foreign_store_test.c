/* A store of the program's own, here a table behind a mutex, through which ranks that are threads
 * find each other. */
#include "expect.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

enum { RANKS = 3, ENTRIES = 256, TIMEOUT = 60000 };

typedef struct {
  char key[64];
  unsigned char value[128];
  size_t size;
  int used;
} Entry;

typedef struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  Entry entries[ENTRIES];
  int broken; /* Fails every call. */
  int released;
} Table;

static Entry* find(Table* table, const char* key, int make) {
  Entry* unused = NULL;
  for (int i = 0; i < ENTRIES; ++i) {
    Entry* entry = &table->entries[i];
    if (entry->used && strcmp(entry->key, key) == 0) return entry;
    if (!entry->used && unused == NULL) unused = entry;
  }
  if (!make) return NULL;
  EXPECT(unused != NULL && strlen(key) < sizeof unused->key);
  *unused = (Entry){.used = 1};
  strcpy(unused->key, key);
  return unused;
}

static void store_value(Table* table, const char* key, const void* value, size_t bytes) {
  Entry* entry = find(table, key, 1);
  EXPECT(bytes <= sizeof entry->value);
  if (bytes > 0) memcpy(entry->value, value, bytes);
  entry->size = bytes;
  pthread_cond_broadcast(&table->changed);
}

static dl_status lock(Table* table) {
  pthread_mutex_lock(&table->mutex);
  return table->broken ? DL_UNREACHABLE : DL_OK;
}
static dl_status unlock(Table* table, dl_status status) {
  pthread_mutex_unlock(&table->mutex);
  return status;
}

static dl_status set(void* self, const char* key, const void* value, size_t bytes) {
  dl_status status = lock(self);
  if (status == DL_OK) store_value(self, key, value, bytes);
  return unlock(self, status);
}

static dl_status get(void* self, const char* key, dl_bytes* value) {
  dl_status status = lock(self);
  const Entry* entry = find(self, key, 0);
  if (status == DL_OK && entry != NULL) status = dl_bytes_copy(value, entry->value, entry->size);
  return unlock(self, status);
}

static dl_status wait_for(void* self, const char* key, int64_t timeout_ms, dl_bytes* value) {
  Table* table = self;
  struct timespec deadline;
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += timeout_ms / 1000;
  deadline.tv_nsec += (timeout_ms % 1000) * 1000000;
  if (deadline.tv_nsec >= 1000000000) {
    ++deadline.tv_sec;
    deadline.tv_nsec -= 1000000000;
  }
  dl_status status = lock(table);
  const Entry* entry = NULL;
  while (status == DL_OK && (entry = find(table, key, 0)) == NULL) {
    if (pthread_cond_timedwait(&table->changed, &table->mutex, &deadline) == ETIMEDOUT) {
      status = DL_TIMEOUT;
    }
  }
  if (status == DL_OK) status = dl_bytes_copy(value, entry->value, entry->size);
  return unlock(table, status);
}

static dl_status add(void* self, const char* key, int64_t delta, int64_t* sum) {
  dl_status status = lock(self);
  Entry* entry = find(self, key, 1);
  int64_t number = 0;
  if (entry->size == sizeof number) memcpy(&number, entry->value, sizeof number);
  *sum = number + delta;
  if (status == DL_OK) store_value(self, key, sum, sizeof *sum);
  return unlock(self, status);
}

static dl_status compare_set(void* self, const char* key, const void* expected,
                             size_t expected_bytes, const void* desired, size_t desired_bytes,
                             int* stored) {
  dl_status status = lock(self);
  const Entry* entry = find(self, key, 0);
  *stored = expected == NULL ? entry == NULL
                             : entry != NULL && entry->size == expected_bytes &&
                                   memcmp(entry->value, expected, expected_bytes) == 0;
  if (status == DL_OK && *stored) store_value(self, key, desired, desired_bytes);
  return unlock(self, status);
}

static dl_status erase(void* self, const char* key, int* existed) {
  dl_status status = lock(self);
  Entry* entry = find(self, key, 0);
  *existed = entry != NULL;
  if (entry != NULL) entry->used = 0;
  return unlock(self, status);
}

static const char* last_message(void* self) {
  return ((const Table*)self)->broken ? "the table is broken" : "";
}
static void release(void* self) {
  Table* table = self;
  pthread_mutex_lock(&table->mutex);
  ++table->released;
  pthread_mutex_unlock(&table->mutex);
}

static const dl_store_ops ops = {sizeof(dl_store_ops), set,   get,          wait_for, add,
                                 compare_set,          erase, last_message, release};

static Table table = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static dl_world* world_of(int rank, int size) {
  const dl_world_info info = {.struct_size = sizeof info, .rank = rank, .size = size, .job = "t"};
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_store(&info, &ops, &table, &world));
  return world;
}

/* Uses what the library makes of the few calls such a store has. */
static void offers_more(dl_store* store, int rank) {
  char key[16], other[16];
  snprintf(key, sizeof key, "k%d", rank);
  snprintf(other, sizeof other, "l%d", rank);
  const char* keys[2] = {key, other};
  const dl_bytes values[2] = {{key, 1}, {NULL, 0}};
  dl_bytes got[2] = {{NULL, 0}, {NULL, 0}};
  size_t size = 0;
  EXPECT_OK(dl_store_multi_set(store, keys, values, 2));
  EXPECT_OK(dl_store_append(store, key, "ey", 2, &size));
  EXPECT_OK(dl_store_append(store, other, "x", 1, NULL)); /* To an empty value. */
  EXPECT_OK(dl_store_multi_get(store, keys, 2, got));
  EXPECT(size == 3 && is_text(&got[0], "key") && is_text(&got[1], "x"));
  dl_bytes_free(&got[0]);
  dl_bytes_free(&got[1]);
  int64_t sum = 0;
  EXPECT_OK(dl_store_add(store, "sum", 2, &sum));
  EXPECT(sum % 2 == 0);
  EXPECT_OK(dl_store_erase(store, key, NULL));
  EXPECT_FAILS(DL_TIMEOUT, key, dl_store_wait_all(store, keys, 2, 10));
  for (int round = 0; round < 3; ++round) {
    EXPECT_OK(dl_store_barrier(store, "met", rank, RANKS, TIMEOUT));
  }
  dl_bytes all[RANKS];
  EXPECT_OK(dl_store_all_gather(store, "all", rank, RANKS, other, 2, TIMEOUT, all));
  for (int i = 0; i < RANKS; ++i) {
    EXPECT(all[i].size == 2 && ((const char*)all[i].data)[1] == '0' + i);
    dl_bytes_free(&all[i]);
  }
  EXPECT_FAILS(DL_MISUSE, "contributor 3 is none of 3", dl_store_barrier(store, "met", 3, 3, 0));
  char** list = NULL;
  EXPECT_FAILS(DL_UNSUPPORTED, "has no list", dl_store_list(store, "", &list, &size));
  EXPECT_FAILS(DL_UNSUPPORTED, "has no queues", dl_store_push(store, "q", "x", 1));
  EXPECT_FAILS(DL_UNSUPPORTED, "has no queues", dl_store_queue_size(store, "q", &size));
  EXPECT_FAILS(DL_UNSUPPORTED, "has no leases", dl_store_set_leased(store, "q", "x", 1, 1000));
}

static void* rank_main(void* argument) {
  const int rank = *(const int*)argument;
  dl_world* world = world_of(rank, RANKS);
  dl_store* store = NULL;
  dl_comm* comm = NULL;
  EXPECT_OK(dl_world_store(world, &store));
  offers_more(store, rank);
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  double x[4] = {rank, rank, rank, 1};
  EXPECT_OK(dl_all_reduce(comm, DL_VIEW(x, 4), dl_op(DL_SUM), DL_HERE));
  EXPECT(x[0] == 3 && x[3] == RANKS);
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  dl_world_info info = {.struct_size = sizeof info};
  EXPECT_OK(dl_world_get_info(world, &info));
  EXPECT(info.local_size == 1 && info.node_rank == rank && info.node_count == RANKS);
  EXPECT(strcmp(info.job, "t") == 0);
  dl_comm_free(comm);
  dl_store_free(store);
  dl_world_free(world);
  return NULL;
}

/* Its failures come back with its status and its words. */
static void fails_with_its_words(void) {
  dl_world* world = world_of(0, 2);
  dl_comm* comm = NULL;
  dl_store* store = NULL;
  EXPECT_OK(dl_world_store(world, &store));
  table.broken = 1;
  EXPECT_FAILS(DL_UNREACHABLE, "failed to get 'mesh/0", dl_comm_create(world, NULL, &comm));
  EXPECT(strstr(dl_last_message(world), "the table is broken") != NULL);
  EXPECT(strcmp(dl_last_message(store), "") == 0); /* It was a call on the world. */
  EXPECT_FAILS(DL_UNREACHABLE, "failed to set 'x': the table is broken",
               dl_store_set(store, "x", NULL, 0));
  EXPECT(strcmp(dl_last_message(store), dl_last_message(NULL)) == 0);
  table.broken = 0;
  dl_store_free(store);
  dl_world_free(world);
}

static void* fails_elsewhere(void* store) {
  EXPECT(strcmp(dl_last_message(store), "") == 0 && strcmp(dl_last_message(NULL), "") == 0);
  EXPECT_FAILS(DL_MISUSE, "dl_store_get: 'value'", dl_store_get(store, "k", NULL));
  EXPECT(strstr(dl_last_message(store), "dl_store_get: 'value'") != NULL);
  return NULL;
}

/* On what several threads use, each hears of its own calls. */
static void tells_each_thread_its_own(void) {
  dl_world* world = world_of(0, 1);
  dl_store* store = NULL;
  pthread_t thread;
  EXPECT_OK(dl_world_store(world, &store));
  EXPECT_FAILS(DL_MISUSE, "dl_store_set: 'key'", dl_store_set(store, NULL, NULL, 0));
  EXPECT(pthread_create(&thread, NULL, fails_elsewhere, store) == 0);
  pthread_join(thread, NULL);
  EXPECT(strstr(dl_last_message(store), "dl_store_set: 'key'") != NULL);
  EXPECT_OK(dl_store_set(store, "k", "v", 1));
  EXPECT(strstr(dl_last_message(store), "dl_store_set: 'key'") != NULL); /* Not cleared. */
  EXPECT_FAILS(DL_MISUSE, "'info'", dl_world_get_info(world, NULL));
  EXPECT(strcmp(dl_last_message(store), "") == 0);
  dl_store_free(store);
  dl_world_free(world);
}

static void refuses_nonsense(void) {
  dl_world* world = NULL;
  dl_world_info info = {.struct_size = sizeof info, .rank = 2, .size = 2};
  EXPECT_FAILS(DL_MISUSE, "rank 2 of 2 is none", dl_world_from_store(&info, &ops, &table, &world));
  info.rank = 0;
  EXPECT_FAILS(DL_MISUSE, "'ops' is a null", dl_world_from_store(&info, NULL, &table, &world));
  EXPECT_FAILS(DL_MISUSE, "'info' is a null", dl_world_from_store(NULL, &ops, &table, &world));
  EXPECT_FAILS(DL_MISUSE, "'world' is a null", dl_world_from_store(&info, &ops, &table, NULL));
  dl_store_ops lacking = ops;
  lacking.wait = NULL;
  EXPECT_FAILS(DL_MISUSE, "has set, get, wait,",
               dl_world_from_store(&info, &lacking, &table, &world));
  EXPECT(world == NULL);
}

int main(void) {
  pthread_t threads[RANKS];
  int ranks[RANKS];
  for (int rank = 0; rank < RANKS; ++rank) {
    ranks[rank] = rank;
    EXPECT(pthread_create(&threads[rank], NULL, rank_main, &ranks[rank]) == 0);
  }
  for (int rank = 0; rank < RANKS; ++rank) pthread_join(threads[rank], NULL);
  EXPECT(table.released == RANKS);
  fails_with_its_words();
  EXPECT(table.released == RANKS + 1);
  tells_each_thread_its_own();
  EXPECT(table.released == RANKS + 2);
  refuses_nonsense();
  EXPECT(table.released == RANKS + 2);
  return 0;
}
