/* Worlds, what they know, turns, ports, and messages without a handle. */
#include "expect.h"

#include <sys/socket.h>
#include <unistd.h>

static void knows_itself(const dl_world* world) {
  dl_world_info info = {.struct_size = sizeof info};
  EXPECT_OK(dl_world_get_info(world, &info));
  EXPECT(info.rank == dl_world_rank(world) && info.size == dl_world_size(world));
  EXPECT(info.local_rank == info.rank && info.local_size == info.size);
  EXPECT(info.node_rank == 0 && info.node_count == 1);
  EXPECT(info.hostname[0] != '\0' && info.init_method != NULL && info.job != NULL);
  if (getenv("RANK") != NULL) EXPECT(info.rank == atoi(getenv("RANK")));
  if (info.size > 1) EXPECT(strcmp(info.init_method, "dlaunch://") == 0);

  /* A structure that knows less, or more, than the library. */
  struct {
    dl_world_info info;
    char newer[16];
  } larger;
  memset(&larger, 0xff, sizeof larger);
  larger.info.struct_size = sizeof larger;
  EXPECT_OK(dl_world_get_info(world, &larger.info));
  EXPECT(larger.info.rank == info.rank && larger.newer[0] == 0 && larger.newer[15] == 0);
  info.struct_size = 8;
  EXPECT_FAILS(DL_MISUSE, "dl_world_get_info: a dl_world_info with struct_size 8",
               dl_world_get_info(world, &info));

  char* json = NULL;
  EXPECT_OK(dl_process_info_json(world, 4, &json));
  EXPECT(strncmp(json, "{\n    \"master_addr\": ", 21) == 0);
  EXPECT(strstr(json, "\"backend\": \"dlaunch\"") != NULL);
  dl_free(json);
  EXPECT_OK(dl_process_info_json(world, -1, &json));
  EXPECT(strchr(json, '\n') == NULL);
  dl_free(json);
}

static void options_say_what_is_wrong(void) {
  dl_world* world = NULL;
  EXPECT_FAILS(DL_MISUSE, "dl_world_init: 'url' is a null pointer",
               dl_world_init(NULL, NULL, &world));
  EXPECT_FAILS(DL_MISUSE, "'world' is a null pointer", dl_world_init("env://", NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'world' is a null pointer", dl_world_from_env(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "nonsense", dl_world_init("nonsense://", NULL, &world));
  dl_init_options options = {.struct_size = 0};
  EXPECT_FAILS(DL_MISUSE, "set struct_size to sizeof(dl_init_options)",
               dl_world_init("env://", &options, &world));
  options.struct_size = SIZE_MAX;
  EXPECT_FAILS(DL_MISUSE, "set struct_size to sizeof(dl_init_options)",
               dl_world_init("env://", &options, &world));
  options = (dl_init_options){.struct_size = sizeof options, .timeout_ms = -1};
  EXPECT_FAILS(DL_MISUSE, "timeout_ms is not negative", dl_world_init("env://", &options, &world));

  /* Fields this library does not know are fine as long as they ask for nothing. A rank of several
   * cannot be a world of one. */
  if (getenv("RANK") != NULL) return;
  struct {
    dl_init_options options;
    int64_t newer;
  } larger = {{.struct_size = sizeof larger, .world_size = 1}, 0};
  EXPECT_OK(dl_world_init("tcp://127.0.0.1:1", &larger.options, &world));
  EXPECT(dl_world_size(world) == 1);
  dl_world_free(world);
  world = NULL;
  larger.newer = 1;
  EXPECT_FAILS(DL_VERSION, "it was built for a newer one",
               dl_world_init("tcp://127.0.0.1:1", &larger.options, &world));
  EXPECT(world == NULL);
}

static void meets_by_file(const char* path, int rank, int size) {
  char url[512];
  snprintf(url, sizeof url, "file://%s", path);
  dl_init_options options = {
      .struct_size = sizeof options, .rank = rank, .world_size = size, .timeout_ms = 60000};
  dl_world* world = NULL;
  EXPECT_OK(dl_world_init(url, &options, &world));
  EXPECT(dl_world_rank(world) == rank && dl_world_size(world) == size);
  dl_world_free(world);
}

typedef struct {
  const dl_world* world;
  dl_store* store;
  int code;
} Turn;

/* The first one finds nothing, all others find what it left. */
static int take_turn(void* argument) {
  const Turn* turn = argument;
  dl_bytes seen = {NULL, 0};
  EXPECT_OK(dl_store_get(turn->store, "turn", &seen));
  EXPECT((seen.data == NULL) == (dl_world_rank(turn->world) == 0));
  dl_bytes_free(&seen);
  if (dl_world_rank(turn->world) == 0) EXPECT_OK(dl_store_set(turn->store, "turn", "taken", 5));
  return turn->code;
}

static int fails(void* argument) { return *(const int*)argument; }

static void takes_turns(const dl_world* world) {
  Turn turn = {.world = world};
  EXPECT_OK(dl_world_store(world, &turn.store));
  EXPECT_OK(dl_rank_zero_first(world, take_turn, &turn, 0, 0));
  int code = 0;
  EXPECT_OK(dl_rank_zero_first(world, fails, &code, 1, 60000));
  code = dl_world_rank(world) == 0 ? 3 : 0;
  EXPECT_FAILS(DL_ABORTED, "the block of rank 0 returned 3",
               dl_rank_zero_first(world, fails, &code, 0, 60000));
  EXPECT(strstr(dl_last_message(world), "returned 3") != NULL);
  EXPECT(strcmp(dl_last_message(turn.store), "") == 0);
  EXPECT_FAILS(DL_MISUSE, "'block' is a null pointer", dl_rank_zero_first(world, NULL, NULL, 0, 0));
  EXPECT_FAILS(DL_MISUSE, "timeout_ms is not negative",
               dl_rank_zero_first(world, fails, &code, 0, -1));
  dl_store_free(turn.store);
}

static void tells_the_launcher(void) {
  /* Nobody has asked for progress. */
  int heard = 1;
  EXPECT_OK(dl_report_progress(&heard));
  EXPECT(heard == 0);
  EXPECT_OK(dl_report_progress(NULL));
  heard = 1;
  EXPECT_OK(dl_extend_deadline(90000, &heard));
  EXPECT(heard == 0);
  EXPECT_FAILS(DL_MISUSE, "time_ms is negative", dl_extend_deadline(-1, NULL));
}

static void keeps_ports(void) {
  dl_listener *first = NULL, *second = NULL;
  EXPECT_OK(dl_find_free_port(&first));
  const int port = dl_listener_port(first);
  EXPECT(port > 0 && dl_listener_fd(first) >= 0);
  int is_free = 1;
  EXPECT_OK(dl_is_free_port(port, &is_free));
  EXPECT(is_free == 0);
  EXPECT_FAILS(DL_REFUSED, "", dl_listener_open(port, NULL, &second));
  EXPECT_FAILS(DL_MISUSE, "70000 is no TCP port", dl_listener_open(70000, NULL, &second));
  EXPECT_FAILS(DL_MISUSE, "70000 is no TCP port", dl_is_free_port(70000, &is_free));
  EXPECT_FAILS(DL_MISUSE, "'is_free' is a null pointer", dl_is_free_port(1, NULL));
  EXPECT_FAILS(DL_MISUSE, "'listener' is a null pointer", dl_find_free_port(NULL));
  EXPECT(second == NULL);
  EXPECT_OK(dl_listener_open(0, "localhost", &second));
  EXPECT(dl_listener_port(second) != port);
  const int fd = dl_listener_release(first);
  int listens = 0;
  socklen_t size = sizeof listens;
  EXPECT(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens == 1);
  EXPECT(dl_listener_fd(first) == -1 && dl_listener_release(first) == -1);
  close(fd);
  dl_listener_free(first);
  dl_listener_free(second);
  EXPECT(dl_listener_port(NULL) == -1 && dl_listener_fd(NULL) == -1);
  EXPECT(dl_listener_release(NULL) == -1);
}

static void names_things(void) {
  EXPECT(strcmp(dl_version(), "") != 0);
  EXPECT(strcmp(dl_status_text(DL_OK), "ok") == 0);
  EXPECT(strcmp(dl_status_text(DL_PEER_LOST), "peer lost") == 0);
  EXPECT(strcmp(dl_dtype_text(DL_BF16), "bf16") == 0 && dl_dtype_size(DL_C128) == 16);
  EXPECT(dl_dtype_size(0) == 0 && dl_dtype_size(-1) == 0 && dl_dtype_size(256 + DL_U8) == 0);
  EXPECT(dl_dtype_text(1000) != NULL && dl_reduce_op_text(-5) != NULL);
  EXPECT(strcmp(dl_reduce_op_text(DL_PREMUL_SUM), "premul_sum") == 0);
  EXPECT(DL_DTYPE_OF((long long)0) == DL_I64 && DL_DTYPE_OF((_Bool)0) == DL_BOOL);
  EXPECT(DL_DTYPE_OF((signed char)0) == DL_I8 && DL_DTYPE_OF(0UL) == DL_U64);
}

static void takes_null(dl_world* world) {
  dl_world_free(NULL);
  dl_world_abandon(NULL);
  dl_listener_free(NULL);
  dl_bytes_free(NULL);
  dl_free(NULL);
  EXPECT(dl_world_rank(NULL) == -1 && dl_world_size(NULL) == 0);
  EXPECT_FAILS(DL_MISUSE, "dl_world_get_info: the dl_world is a null pointer",
               dl_world_get_info(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'info' is a null pointer", dl_world_get_info(world, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_process_info_json: the dl_world",
               dl_process_info_json(NULL, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "'text' is a null pointer", dl_process_info_json(world, 0, NULL));
  EXPECT_FAILS(DL_MISUSE, "dl_world_store: the dl_world", dl_world_store(NULL, NULL));
  EXPECT_FAILS(DL_MISUSE, "'store' is a null pointer", dl_world_store(world, NULL));
  EXPECT_FAILS(DL_MISUSE, "the dl_world", dl_rank_zero_first(NULL, fails, NULL, 0, 0));
}

int main(int argc, char** argv) {
  names_things();
  options_say_what_is_wrong();
  dl_world* world = NULL;
  EXPECT_OK(dl_world_from_env(NULL, &world));
  EXPECT(strcmp(dl_last_message(world), "") == 0);
  knows_itself(world);
  takes_turns(world);
  tells_the_launcher();
  keeps_ports();
  takes_null(world);
  if (argc > 1) meets_by_file(argv[1], dl_world_rank(world), dl_world_size(world));
  dl_world_free(world);
  return 0;
}
