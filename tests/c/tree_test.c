/* Structured values: as text and back, and through every call that takes them. */
#include "expect.h"

static dl_comm* comm;
static int rank, size;

static dl_tree* tree_of(const char* json) {
  dl_tree* tree = NULL;
  EXPECT_OK(dl_tree_parse(json, NULL, 0, &tree));
  return tree;
}

static int reads(const dl_tree* tree, const char* json) {
  char* text = NULL;
  EXPECT_OK(dl_tree_json(tree, -1, &text));
  const int same = strcmp(text, json) == 0;
  if (!same) fprintf(stderr, "the value is %s\n", text);
  dl_free(text);
  return same;
}

static void keeps_every_kind(void) {
  const char* json =
      "{\"null\":null,\"yes\":true,\"integer\":-7,\"real\":2.0,\"large\":1e+300,\"text\":"
      "\"\\u00e4\","
      "\"list\":[1,[2,{}]],\"tuple\":{\"$tuple\":[1,\"x\"]},\"nan\":{\"$real\":\"nan\"},"
      "\"less\":{\"$real\":\"-inf\"},\"bytes\":{\"$bytes\":\"00ff\"},\"own\":{\"$$tensor\":0}}";
  dl_tree* tree = tree_of(json);
  char* text = NULL;
  EXPECT_OK(dl_tree_json(tree, -1, &text));
  dl_tree* again = tree_of(text);
  EXPECT(reads(again, text));
  EXPECT(strstr(text, "\"large\":1e+300") != NULL &&
         strstr(text, "\"own\":{\"$$tensor\":0}") != NULL);
  EXPECT(strstr(text, "\"bytes\":{\"$bytes\":\"00ff\"}") != NULL);
  EXPECT(strstr(text, "\"real\":2.0,") != NULL && strstr(text, "\xc3\xa4") != NULL);
  dl_free(text);
  dl_tree_free(again);
  dl_tree_free(tree);
  dl_tree *a = tree_of("{\"a\":1,\"b\":[2]}"), *b = tree_of("{\"b\":[2],\"a\":1}");
  EXPECT(dl_tree_equal(a, b) && !dl_tree_equal(a, NULL));
  dl_bytes bytes = {NULL, 0};
  dl_tree* decoded = NULL;
  EXPECT_OK(dl_tree_encode(a, &bytes));
  EXPECT_OK(dl_tree_decode(bytes.data, bytes.size, &decoded));
  EXPECT(dl_tree_equal(a, decoded));
  dl_tree_free(a);
  dl_tree_free(b);
  dl_tree_free(decoded);
  decoded = NULL;
  EXPECT_FAILS(DL_MISMATCH, "no structured value", dl_tree_decode("x", 1, &decoded));
  EXPECT(decoded == NULL);
  dl_bytes_free(&bytes);
}

static dl_tree* with_tensors(void) {
  static float matrix[2][3] = {{0, 1, 2}, {3, 4, 5}};
  static int64_t scalar;
  scalar = rank;
  const int64_t transposed[2] = {3, 2}, strides[2] = {1, 3};
  const dl_tensor tensors[2] = {{matrix, DL_F32, 2, transposed, strides},
                                {&scalar, DL_I64, 0, NULL, NULL}};
  dl_tree* tree = NULL;
  EXPECT_OK(
      dl_tree_parse("{\"s\":{\"$tensor\":1},\"w\":[{\"$tensor\":0}],\"n\":2}", tensors, 2, &tree));
  return tree;
}

static void holds_tensors(void) {
  dl_tree* tree = with_tensors();
  EXPECT(reads(tree,
               "{\"s\":{\"$tensor\":0,\"dtype\":\"i64\",\"shape\":[]},\"w\":[{\"$tensor\":1,"
               "\"dtype\":\"f32\",\"shape\":[3,2]}],\"n\":2}"));
  EXPECT(dl_tree_tensor_count(tree) == 2 && dl_tree_tensor_count(NULL) == 0);
  dl_tensor tensors[2];
  EXPECT_OK(dl_tree_tensor(tree, 0, &tensors[0]));
  EXPECT_OK(dl_tree_tensor(tree, 1, &tensors[1]));
  EXPECT(tensors[0].axes == 0 && *(const int64_t*)tensors[0].data == rank);
  EXPECT(tensors[1].axes == 2 && tensors[1].shape[0] == 3 && tensors[1].strides == NULL);
  const float expected[6] = {0, 3, 1, 4, 2, 5};
  EXPECT(memcmp(tensors[1].data, expected, sizeof expected) == 0);
  char* text = NULL; /* The text and the tensors make the same value again. */
  dl_tree* again = NULL;
  EXPECT_OK(dl_tree_json(tree, 2, &text));
  EXPECT_OK(dl_tree_parse(text, tensors, 2, &again));
  EXPECT(dl_tree_equal(tree, again));
  EXPECT_FAILS(DL_MISUSE, "there is no tensor 2", dl_tree_tensor(tree, 2, &tensors[0]));
  EXPECT(strstr(dl_last_message(tree), "no tensor 2") != NULL);
  EXPECT_FAILS(DL_MISUSE, "asks for tensor 1, 1 were given",
               dl_tree_parse(text, tensors, 1, &again));
  dl_free(text);
  dl_tree_free(again);
  dl_tree_free(tree);
}

static void refuses_bad_text(void) {
  dl_tree* tree = NULL;
  dl_tensor tensor = {NULL, DL_F32, 1, NULL, NULL};
  const int64_t negative[1] = {-1}, two[1] = {2};
  EXPECT_FAILS(DL_MISUSE, "dl_tree_parse: the text is no JSON", dl_tree_parse("{", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "no JSON", dl_tree_parse("1e999", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "'json' is a null pointer", dl_tree_parse(NULL, NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "'tree' is a null pointer", dl_tree_parse("1", NULL, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "'tensors' is a null pointer", dl_tree_parse("1", NULL, 1, &tree));
  EXPECT_FAILS(DL_MISUSE, "means nothing", dl_tree_parse("{\"$x\":1}", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "means nothing", dl_tree_parse("{\"$tensor\":-1}", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "hexadecimal", dl_tree_parse("{\"$bytes\":\"0g\"}", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "has no other key",
               dl_tree_parse("{\"$tuple\":[],\"a\":1}", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "begins with a dollar sign",
               dl_tree_parse("{\"a\":1,\"$b\":1}", NULL, 0, &tree));
  EXPECT_FAILS(DL_MISUSE, "'shape' is a null", dl_tree_parse("{\"$tensor\":0}", &tensor, 1, &tree));
  tensor.shape = negative;
  EXPECT_FAILS(DL_MISUSE, "not negative", dl_tree_parse("{\"$tensor\":0}", &tensor, 1, &tree));
  tensor.shape = two;
  EXPECT_FAILS(DL_MISUSE, "'data' is a null", dl_tree_parse("{\"$tensor\":0}", &tensor, 1, &tree));
  tensor.axes = 65;
  EXPECT_FAILS(DL_MISUSE, "not 65", dl_tree_parse("{\"$tensor\":0}", &tensor, 1, &tree));
  tensor.axes = 0;
  tensor.dtype = 77;
  EXPECT_FAILS(DL_MISUSE, "known dtype", dl_tree_parse("{\"$tensor\":0}", &tensor, 1, &tree));
  char* deep = calloc(1, 200001);
  memset(deep, '[', 100000);
  memset(deep + 100000, ']', 100000);
  EXPECT_FAILS(DL_MISUSE, "deeper than 64 levels", dl_tree_parse(deep, NULL, 0, &tree));
  memmove(deep + 65, deep + 200000 - 65, 66);
  EXPECT_FAILS(
      DL_MISUSE, "deeper than 64 levels",
      dl_tree_parse("[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]"
                    "]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
                    NULL, 0, &tree));
  EXPECT_OK(dl_tree_parse(deep, NULL, 0, &tree)); /* 65 lists: 64 levels below the first. */
  dl_tree_free(tree);
  free(deep);
}

static void goes_to_others(void) {
  char json[64];
  snprintf(json, sizeof json, "{\"rank\":%d}", rank);
  dl_tree *mine = tree_of(json), *result = NULL;
  dl_tree** all = calloc((size_t)size, sizeof *all);
  const int root = size - 1;
  snprintf(json, sizeof json, "{\"rank\":%d}", root);
  EXPECT_OK(dl_broadcast_object(comm, rank == root ? mine : NULL, root, &result, DL_HERE));
  EXPECT(reads(result, json));
  dl_tree_free(result);

  EXPECT_OK(dl_all_gather_objects(comm, mine, all, DL_HERE));
  for (int r = 0; r < size; ++r) {
    snprintf(json, sizeof json, "{\"rank\":%d}", r);
    EXPECT(reads(all[r], json));
  }
  EXPECT_OK(
      dl_scatter_objects(comm, rank == 0 ? (const dl_tree* const*)all : NULL, 0, &result, DL_HERE));
  EXPECT(dl_tree_equal(result, mine));
  dl_tree_free(result);
  for (int r = 0; r < size; ++r) dl_tree_free(all[r]);

  EXPECT_OK(dl_gather_objects(comm, mine, root, rank == root ? all : NULL, DL_HERE));
  for (int r = 0; rank == root && r < size; ++r) {
    snprintf(json, sizeof json, "{\"rank\":%d}", r);
    EXPECT(reads(all[r], json));
    dl_tree_free(all[r]);
  }
  free(all);

  EXPECT_OK(dl_send_object(comm, mine, (rank + 1) % size, &DL_OPTIONS(.tag = 5)));
  EXPECT_OK(dl_recv_object(comm, (rank + size - 1) % size, &result, &DL_OPTIONS(.tag = 5)));
  snprintf(json, sizeof json, "{\"rank\":%d}", (rank + size - 1) % size);
  EXPECT(reads(result, json));
  dl_tree_free(result);
  dl_tree_free(mine);
}

static void stacks_and_folds(void) {
  dl_tree *mine = with_tensors(), *result = NULL;
  dl_tensor tensor;
  EXPECT_OK(dl_all_gather_stacked(comm, mine, &result, DL_HERE));
  EXPECT(dl_tree_tensor_count(result) == 3); /* The number has become one, too. */
  EXPECT_OK(dl_tree_tensor(result, 0, &tensor));
  EXPECT(tensor.axes == 1 && tensor.shape[0] == size);
  for (int r = 0; r < size; ++r) EXPECT(((const int64_t*)tensor.data)[r] == r);
  dl_tree_free(result);
  EXPECT_OK(dl_all_reduce_object(comm, mine, dl_op(DL_SUM), &result, DL_HERE));
  EXPECT_OK(dl_tree_tensor(result, 0, &tensor));
  EXPECT(*(const int64_t*)tensor.data == size * (size - 1) / 2);
  EXPECT_OK(dl_tree_tensor(result, 1, &tensor));
  EXPECT(((const float*)tensor.data)[5] == 5.0f * (float)size);
  dl_tree_free(result);
  dl_tree_free(mine);
  result = NULL;
  if (size > 1) {
    dl_tree* other = tree_of(rank == 0 ? "[1]" : "[1, 2]");
    dl_comm* own = NULL; /* The error ends it. */
    EXPECT_OK(dl_comm_duplicate(comm, &own, DL_HERE));
    EXPECT_FAILS(DL_MISMATCH, "differ in structure",
                 dl_all_gather_stacked(own, other, &result, DL_HERE));
    EXPECT(result == NULL);
    EXPECT_OK(dl_barrier(comm, NULL));
    dl_comm_free(own);
    dl_tree_free(other);
  }
}

static void takes_null(void) {
  dl_tree* result = NULL;
  char* text = NULL;
  dl_tree_free(NULL);
  EXPECT_FAILS(DL_MISUSE, "dl_tree_json: the dl_tree", dl_tree_json(NULL, 0, &text));
  EXPECT_FAILS(DL_MISUSE, "dl_tree_tensor: the dl_tree", dl_tree_tensor(NULL, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_tree_encode: the dl_tree", dl_tree_encode(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_broadcast_object: the dl_comm",
               dl_broadcast_object(NULL, NULL, 0, &result, NULL));
  EXPECT_FAILS(DL_MISUSE, "'result' is a null pointer",
               dl_broadcast_object(comm, NULL, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'results' is a null pointer",
               dl_all_gather_objects(comm, NULL, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_comm", dl_gather_objects(NULL, NULL, 0, NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_comm", dl_scatter_objects(NULL, NULL, 0, &result, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_comm", dl_send_object(NULL, NULL, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_comm", dl_recv_object(NULL, 0, &result, NULL));
  EXPECT_OK(dl_broadcast_object(comm, NULL, 0, &result, DL_HERE));
  EXPECT(reads(result, "null"));
  dl_tree_free(result);
}

int main(void) {
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT_OK(dl_comm_create(world, NULL, &comm));
  EXPECT_OK(dl_comm_set_timeout(comm, 60000));
  rank = dl_comm_rank(comm);
  size = dl_comm_size(comm);
  keeps_every_kind();
  holds_tensors();
  refuses_bad_text();
  goes_to_others();
  stacks_and_folds();
  takes_null();
  EXPECT_OK(dl_barrier(comm, DL_HERE));
  dl_comm_free(comm);
  dl_world_free(world);
  return 0;
}
