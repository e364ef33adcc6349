/* The key-value store, as ranks of a job and alone. */
#include "expect.h"

#include <unistd.h>

enum { TIMEOUT = 60000 };

static void keeps_values(dl_store* store, int rank) {
  char key[32], value[32];
  snprintf(key, sizeof key, "own/%d", rank);
  snprintf(value, sizeof value, "value %d", rank);
  dl_bytes got = {NULL, 0};
  EXPECT_OK(dl_store_get(store, key, &got));
  EXPECT(got.data == NULL);
  EXPECT_OK(dl_store_set(store, key, value, strlen(value)));
  EXPECT_OK(dl_store_get(store, key, &got));
  EXPECT(is_text(&got, value));
  dl_bytes_free(&got);
  EXPECT(got.data == NULL && got.size == 0);

  size_t size = 0;
  EXPECT_OK(dl_store_append(store, key, "!", 1, &size));
  EXPECT(size == strlen(value) + 1);
  EXPECT_OK(dl_store_append(store, key, "?", 1, NULL));
  EXPECT_OK(dl_store_set(store, key, NULL, 0)); /* Empty is not absent. */
  EXPECT_OK(dl_store_get(store, key, &got));
  EXPECT(got.data != NULL && got.size == 0);
  dl_bytes_free(&got);

  int did = -1;
  EXPECT_OK(dl_store_compare_set(store, key, NULL, 0, "a", 1, &did));
  EXPECT(did == 0);
  EXPECT_OK(dl_store_compare_set(store, key, "", 0, "b", 1, &did));
  EXPECT(did == 1);
  EXPECT_OK(dl_store_compare_set(store, key, "b", 1, "c", 1, &did));
  EXPECT(did == 1);
  EXPECT_OK(dl_store_erase(store, key, &did));
  EXPECT(did == 1);
  EXPECT_OK(dl_store_erase(store, key, &did));
  EXPECT(did == 0);
  EXPECT_OK(dl_store_erase(store, key, NULL));
  EXPECT_OK(dl_store_set_leased(store, key, "leased", 6, 60000));
  EXPECT_OK(dl_store_wait(store, key, 0, &got));
  EXPECT(is_text(&got, "leased"));
  dl_bytes_free(&got);
}

static void counts_and_meets(dl_store* store, int rank, int size) {
  int64_t sum = 0;
  EXPECT_OK(dl_store_add(store, "counter", rank + 1, &sum));
  EXPECT(sum >= rank + 1);
  EXPECT_OK(dl_store_barrier(store, "counted", rank, size, TIMEOUT));
  EXPECT_OK(dl_store_add(store, "counter", 0, &sum));
  EXPECT(sum == (int64_t)size * (size + 1) / 2);
  EXPECT_OK(dl_store_add(store, "counter", 0, NULL));

  char blob[16] = {0};
  memset(blob, 'a' + rank, (size_t)rank + 1); /* Each rank's has its own length. */
  dl_bytes* blobs = calloc((size_t)size, sizeof *blobs);
  for (int round = 0; round < 3; ++round) {
    EXPECT_OK(dl_store_all_gather(store, "blobs", rank, size, blob, strlen(blob), TIMEOUT, blobs));
    for (int other = 0; other < size; ++other) {
      char expected[16] = {0};
      memset(expected, 'a' + other, (size_t)other + 1);
      EXPECT(is_text(&blobs[other], expected));
      dl_bytes_free(&blobs[other]);
    }
  }
  free(blobs);
  EXPECT_FAILS(DL_TIMEOUT, "", dl_store_barrier(store, "alone", rank, size + 1, 20));
}

static void handles_many(dl_store* store, int rank) {
  char prefix[32], first[40], second[40];
  snprintf(prefix, sizeof prefix, "many/%d/", rank);
  snprintf(first, sizeof first, "%sa", prefix);
  snprintf(second, sizeof second, "%sb", prefix);
  const char* keys[3] = {first, second, "absent"};
  const dl_bytes values[2] = {{first, 3}, {NULL, 0}};
  EXPECT_OK(dl_store_multi_set(store, keys, values, 2));
  EXPECT_OK(dl_store_wait_all(store, keys, 2, TIMEOUT));
  dl_bytes got[3];
  EXPECT_OK(dl_store_multi_get(store, keys, 3, got));
  EXPECT(is_text(&got[0], "man") && is_text(&got[1], "") && got[2].data == NULL);
  for (int i = 0; i < 3; ++i) dl_bytes_free(&got[i]);
  EXPECT_FAILS(DL_TIMEOUT, "absent", dl_store_wait_all(store, keys, 3, 20));
  EXPECT(strstr(dl_last_message(store), "absent") != NULL);

  char** list = NULL;
  size_t count = 0;
  EXPECT_OK(dl_store_list(store, prefix, &list, &count));
  EXPECT(count == 2 && strcmp(list[0], first) == 0 && strcmp(list[1], second) == 0);
  EXPECT(list[2] == NULL);
  dl_free(list);
  EXPECT_OK(dl_store_list(store, "nothing begins so", &list, &count));
  EXPECT(count == 0 && list[0] == NULL);
  dl_free(list);
}

static void queues(dl_store* store, int rank) {
  char queue[32];
  snprintf(queue, sizeof queue, "queue/%d", rank);
  dl_bytes got = {NULL, 0};
  size_t size = 9;
  EXPECT_OK(dl_store_try_pop(store, queue, &got));
  EXPECT(got.data == NULL);
  EXPECT_OK(dl_store_push(store, queue, "one", 3));
  EXPECT_OK(dl_store_push(store, queue, "two", 3));
  EXPECT_OK(dl_store_queue_size(store, queue, &size));
  EXPECT(size == 2);
  EXPECT_OK(dl_store_pop(store, queue, TIMEOUT, &got));
  EXPECT(is_text(&got, "one"));
  dl_bytes_free(&got);
  EXPECT_OK(dl_store_try_pop(store, queue, &got));
  EXPECT(is_text(&got, "two"));
  dl_bytes_free(&got);
  EXPECT_FAILS(DL_TIMEOUT, queue, dl_store_pop(store, queue, 10, &got));
  EXPECT(got.data == NULL);
}

/* Watching begins with the first call: the rank that changes the key goes on until that is over. */
static void watches(dl_store* store, int rank, int size) {
  dl_change change = DL_UPDATED;
  dl_bytes value = {NULL, 0};
  EXPECT_FAILS(DL_TIMEOUT, "", dl_store_watch(store, "watched", 10, &change, &value));
  EXPECT_OK(dl_store_barrier(store, "watching", rank, size, TIMEOUT));
  if (rank == 0) EXPECT_OK(dl_store_set(store, "watched", "new", 3));
  EXPECT_OK(dl_store_watch(store, "watched", TIMEOUT, &change, &value));
  EXPECT(change == DL_CREATED && is_text(&value, "new"));
  dl_bytes_free(&value);
  EXPECT_OK(dl_store_barrier(store, "watching", rank, size, TIMEOUT));
  if (rank == 0) EXPECT_OK(dl_store_erase(store, "watched", NULL));
  EXPECT_OK(dl_store_watch(store, "watched", TIMEOUT, &change, &value));
  EXPECT(change == DL_DELETED && value.data == NULL);
}

static void refuses_nonsense(dl_store* store) {
  dl_bytes value = {NULL, 0};
  const char* keys[1] = {NULL};
  EXPECT_FAILS(DL_MISUSE, "dl_store_get: 'key' is a null pointer",
               dl_store_get(store, NULL, &value));
  EXPECT_FAILS(DL_MISUSE, "'value' is a null pointer", dl_store_get(store, "k", NULL));
  EXPECT_FAILS(DL_MISUSE, "'value' is a null pointer for 3 bytes",
               dl_store_set(store, "k", NULL, 3));
  EXPECT_FAILS(DL_MISUSE, "timeout_ms is not negative", dl_store_wait(store, "k", -1, &value));
  EXPECT_FAILS(DL_MISUSE, "'keys[i]' is a null pointer", dl_store_wait_all(store, keys, 1, 1));
  EXPECT_FAILS(DL_MISUSE, "'keys' is a null pointer for 2 keys",
               dl_store_multi_get(store, NULL, 2, &value));
  EXPECT_FAILS(DL_MISUSE, "'values' is a null pointer", dl_store_multi_set(store, keys, NULL, 1));
  EXPECT_FAILS(DL_MISUSE, "'stored' is a null pointer",
               dl_store_compare_set(store, "k", NULL, 0, "a", 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "'blobs' is a null pointer",
               dl_store_all_gather(store, "n", 0, 1, NULL, 0, 1, NULL));
  EXPECT_OK(dl_store_set(store, "text", "no number", 9));
  EXPECT_FAILS(DL_REFUSED, "text", dl_store_add(store, "text", 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_store_add: the dl_store is a null pointer",
               dl_store_add(NULL, "k", 1, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_store", dl_store_set(NULL, "k", NULL, 0));
  EXPECT_FAILS(DL_MISUSE, "the dl_store", dl_store_push(NULL, "k", NULL, 0));
  EXPECT_FAILS(DL_MISUSE, "the dl_store", dl_store_barrier(NULL, "k", 0, 1, 0));
  EXPECT_FAILS(DL_MISUSE, "'bytes' is a null pointer", dl_bytes_copy(NULL, NULL, 0));
  EXPECT_FAILS(DL_MISUSE, "'data' is a null pointer for 1 bytes", dl_bytes_copy(&value, NULL, 1));
  dl_store_free(NULL);
}

int main(void) {
  dl_world* world = NULL;
  dl_store* store = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_world_store(world, &store));
  const int rank = dl_world_rank(world), size = dl_world_size(world);
  keeps_values(store, rank);
  counts_and_meets(store, rank, size);
  handles_many(store, rank);
  queues(store, rank);
  watches(store, rank, size);
  refuses_nonsense(store);
  EXPECT_OK(dl_store_barrier(store, "end", rank, size, TIMEOUT));
  dl_store_free(store);
  dl_world_free(world);
  return 0;
}
